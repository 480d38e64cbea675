"""Emulate an experiment into a run's folder: check the machine, begin the run or continue it, and run its trials."""

from pathlib import Path

from wanbed.ground.errors import MissingError, prefixed
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.results.reading.validity import MODELLED_TCP
from wanbed.runner.emulation.virtual_clock import wants_guest
from wanbed.runner.emulation.virtual_run import virtual_run
from wanbed.runner.runs.caveats import log_caveats
from wanbed.runner.runs.run_folder import (
    begin_run,
    check_runs_folder,
    check_same_substrate,
    exclusively,
    kept_trials,
    resumed,
)
from wanbed.runner.runs.run_request import RunRequest
from wanbed.testbed.claims.cleaning import leftovers_text
from wanbed.testbed.substrate.offer import RELAY


def emulated_run(request: RunRequest) -> Path:
    """Run the missing trials of the requested run, in virtual time if that is its clock, and return its folder.

    Raise InsideError if the run in virtual time fails.
    """
    experiment = request.experiment
    log_caveats(experiment.points(), keep_gradients=request.keep_gradients, log=request.log)
    if wants_guest(experiment.spec, request.substrate):
        check_exclusions(
            Exclusion(
                "--keep-going",
                "a failure in virtual time repeats itself",
                "give clock: real",
                when=request.keep_going,
            )
        )
        return virtual_run(request)
    return _run_here(request)


def _run_here(request: RunRequest) -> Path:
    # Mininet comes with these, which a machine that only simulates lacks.
    from wanbed.runner.emulation.emulation import run_trials  # noqa: PLC0415
    from wanbed.runner.emulation.gpu_provisioning import check_gpus  # noqa: PLC0415
    from wanbed.runner.emulation.one_machine import on_this_machine  # noqa: PLC0415
    from wanbed.runner.emulation.relay_limits import check_relay  # noqa: PLC0415
    from wanbed.runner.emulation.run_dilation import check_link_rates, decide_dilation  # noqa: PLC0415
    from wanbed.runner.trainings.program.on_hosts import check_programs  # noqa: PLC0415
    from wanbed.testbed.testbed import usable_substrate  # noqa: PLC0415

    experiment, source, substrate, log = request.experiment, request.source, request.substrate, request.log
    store = resumed(experiment, request.runs, log) if request.resume else None
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
        check_runs_folder(request.runs)
        dilation = decide_dilation(experiment.points(), substrate)
        with prefixed(f"{source}: "):
            check_link_rates(experiment.points(), dilation.factor)
        store = begin_run(
            experiment, request.runs, {"dilation": dilation.factor, "capacity_bps": dilation.capacity_bps}
        )
    factor = float(store.manifest["dilation"])
    if factor != 1:
        log(f"dilation {factor:g}: delays and compute take {factor:g} times as long, rates are divided by it")
    with exclusively(store.path), kept_trials(experiment, store):
        run_trials(
            experiment,
            store,
            network_of=on_this_machine(substrate, source, log),
            log=log,
            keep_gradients=request.keep_gradients,
            keep_going=request.keep_going,
            stream=request.stream,
        )
    return store.path
