"""Emulate an experiment into a run's folder: check the machine, begin the run or continue it, and run its trials."""

from pathlib import Path
from typing import BinaryIO, TextIO

from ground.strict_model import InputError, prefixed
from results.reading.modelled_tcp import MODELLED_TCP
from runner.emulation.virtual.virtual_clock import wants_guest
from runner.emulation.virtual.virtual_run import virtual_run
from runner.resolve.experiment import Experiment
from runner.runs.continuable import check_same_substrate
from runner.runs.resuming import kept_trials, resumed
from runner.runs.run_folder import Log, begin_run, check_runs_folder, exclusively
from runner.runs.told_beforehand import tell_beforehand
from testbed.claims.leftovers import leftovers_text
from testbed.kernel.missing import MissingError
from testbed.substrate.offer import RELAY


def emulated_run(
    experiment: Experiment,
    source: str,
    directory: Path,
    runs: Path,
    *,
    substrate: str,
    resume: bool,
    keep_gradients: bool,
    log: Log,
    keep_going: bool = False,
    stream: TextIO | None = None,
    standard_error: BinaryIO | None = None,
) -> Path:
    """Run the missing trials of an experiment's run, in virtual time if that is its clock, and return its folder.

    ``source`` names the experiment in messages and in the testbed's record; ``directory`` is where its relative paths
    begin. ``log`` gets lines on what happens, ``stream`` (default: standard error) the progress, and
    ``standard_error`` (default: this process's) what a run in virtual time prints. With ``keep_going`` a trial that
    fails does not end the run. Raise InsideError if the run in virtual time fails.
    """
    tell_beforehand(experiment.points(), keep_gradients=keep_gradients, log=log)
    if wants_guest(experiment.spec, substrate):
        if keep_going:
            raise InputError("--keep-going: a failure in virtual time repeats itself: leave it out, or clock: virtual")
        return virtual_run(
            experiment, source, directory, runs, resume=resume, log=log, stream=stream, standard_error=standard_error
        )
    return _run_here(
        experiment,
        source,
        runs,
        substrate,
        resume=resume,
        keep_gradients=keep_gradients,
        keep_going=keep_going,
        log=log,
        stream=stream,
    )


def _run_here(
    experiment: Experiment,
    source: str,
    runs: Path,
    substrate: str,
    *,
    resume: bool,
    keep_gradients: bool,
    keep_going: bool,
    log: Log,
    stream: TextIO | None,
) -> Path:
    # Mininet comes with these, which a machine that only simulates lacks.
    from runner.emulation.gpu_provisioning import check_gpus  # noqa: PLC0415
    from runner.emulation.one_machine import on_this_machine  # noqa: PLC0415
    from runner.emulation.programs.program_check import check_programs  # noqa: PLC0415
    from runner.emulation.relay_limits import check_relay  # noqa: PLC0415
    from runner.emulation.run_dilation import check_link_rates, decide_dilation  # noqa: PLC0415
    from runner.emulation.trials import run_trials  # noqa: PLC0415
    from testbed.testbed import usable_substrate  # noqa: PLC0415

    store = resumed(experiment, runs, log) if resume else None
    if store is not None and store.manifest["complete"]:
        return store.path
    with prefixed(f"{source}: "):
        check_relay(experiment.points(), substrate)
        check_link_rates(experiment.points())
        for point in experiment.points():
            check_programs(point)
    offer = usable_substrate(substrate)
    if store is not None:
        check_same_substrate(store, offer.name)
    if substrate == RELAY:
        log(MODELLED_TCP)
    if text := leftovers_text():
        log(text)
    for point in experiment.points():
        if (missing := point.spec.compute.backend.missing()) is not None:
            raise MissingError(missing)
    with prefixed(f"{source}: "):
        check_gpus(experiment)
    if store is None:
        check_runs_folder(runs)
        dilation = decide_dilation(experiment.points(), substrate)
        with prefixed(f"{source}: "):
            check_link_rates(experiment.points(), dilation.factor)
        store = begin_run(experiment, runs, {"dilation": dilation.factor, "capacity_bps": dilation.capacity_bps})
    factor = float(store.manifest["dilation"])
    if factor != 1:
        log(f"dilation {factor:g}: delays and compute take {factor:g} times as long, rates are divided by it")
    with exclusively(store.path), kept_trials(experiment, store):
        run_trials(
            experiment,
            store,
            network_of=on_this_machine(substrate, source, log),
            log=log,
            keep_gradients=keep_gradients,
            keep_going=keep_going,
            stream=stream,
        )
    return store.path
