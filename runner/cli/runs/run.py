"""``wanbed run``: run an experiment, emulated or simulated as its file selects."""

from pathlib import Path
from typing import Annotated

import typer

from ground.strict_model import InputError, prefixed
from results.reading.not_modelled import not_modelled_text
from runner.cli.arguments import (
    AsJson,
    Clock,
    DryRun,
    ExperimentFile,
    Jobs,
    Overrides,
    Resume,
    RunsFolder,
    SubstrateName,
)
from runner.cli.exit_status import one_line_errors
from runner.cli.outcome import list_trials, log, show_outcome
from runner.cli.runs.inner_run import MODULE as INNER_RUN
from runner.cli.runs.inner_run import InnerRun
from runner.cli.runs.resuming import kept_trials, resumed
from runner.cli.runs.simulate import simulated_run
from runner.emulation.network_choice import source_of
from runner.emulation.virtual.virtual_clock import enter_virtual_time, wants_guest
from runner.emulation.virtual.virtual_patience import quiet_patience_s
from runner.emulation.virtual.virtual_progress import VirtualProgress
from runner.planner.experiment_file import load_experiment
from runner.resolve.experiment import Experiment
from runner.resolve.prefill.computed_prefill import check_memory_for_weights
from runner.runs.cut_connections import cut_lines
from runner.runs.faults import OUTSIDE_TOLERANCE
from runner.runs.not_modelled import planned_without
from runner.runs.run_folder import begin_run, check_runs_folder, exclusively
from testbed.kernel.missing import MissingError
from testbed.virtual_time.guest_boot import check_visible
from testbed.virtual_time.kernel.kernel_cache import virtual_kernel
from testbed.virtual_time.watchdog import Patience


def run(
    file: ExperimentFile,
    *,
    overrides: Overrides = None,
    engine: Annotated[str | None, typer.Option(help="Short for --set engine=NAME.")] = None,
    clock: Clock = None,
    substrate: SubstrateName = "auto",
    jobs: Jobs = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    runs: RunsFolder = Path("runs"),
    keep_gradients: Annotated[
        bool, typer.Option("--keep-gradients", help="Keep the last iteration's gradients that torch computed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the sweep: calibrate every link, run every trial, and write the run folder and its report.

    With `engine: simulate` in the file, this is `wanbed simulate`. With `clock: virtual` the trials run in virtual
    time, inside a guest kernel that `make virtual` builds. Exit status 1 if a link was outside tolerance; the run is
    then marked, and the last line says which links.
    """
    with one_line_errors():
        shortcuts = [f"{name}={value}" for name, value in (("engine", engine), ("clock", clock)) if value is not None]
        written = [*(overrides or []), *shortcuts]
        experiment = load_experiment(file, written)
        simulated = experiment.spec.engine == "simulate"
        if simulated and (keep_gradients or substrate != "auto"):
            option = "--keep-gradients" if keep_gradients else "--substrate"
            raise InputError(f"{option}: a simulation has none: leave it out, or give engine: emulate")
        if not simulated and jobs is not None:
            raise InputError("--jobs: an emulation runs one trial at a time: leave it out, or give engine: simulate")
        if dry_run:
            list_trials(experiment, as_json)
            return
        if simulated:
            path = simulated_run(experiment, runs, resume=resume, jobs=jobs)
        else:
            for line in cut_lines(experiment.points()):
                log(line)
            for backend in (point.spec.compute.backend for point in experiment.points() if keep_gradients):
                if not backend.trains:
                    raise InputError(f"--keep-gradients: {backend.title} makes none: give compute: {{kind: torch}}")
            if without := not_modelled_text(
                each for point in experiment.points() for each in planned_without(point.spec, point.topology)
            ):
                log(f"placement auto: the planner simulates, and does not model {without}")
            if wants_guest(experiment.spec, substrate):
                path = _virtual_run(experiment, file, written, runs, resume=resume)
            else:
                path = _emulated_run(
                    experiment, source_of(file), substrate, runs, resume=resume, keep_gradients=keep_gradients
                )
        as_configured = show_outcome(path, as_json)
    if not as_configured:
        raise typer.Exit(OUTSIDE_TOLERANCE)


def _virtual_run(experiment: Experiment, file: Path, overrides: list[str], runs: Path, *, resume: bool) -> Path:
    """Run the trials inside the virtual-time guest. Create the run folder outside, where machine facts are known."""
    kernel = virtual_kernel()
    facts = {"virtual_time": {"kernel": kernel.record.release, "configuration_hash": kernel.record.configuration_hash}}
    store = resumed(experiment, runs) if resume else None
    if store is not None and store.manifest["complete"]:
        return store.path
    if store is None:
        check_runs_folder(runs)
        check_visible(runs, "--runs")
        store = begin_run(experiment, runs, {"dilation": 1.0, **facts})
    elif store.manifest.get("virtual_time") != facts["virtual_time"]:
        raise InputError(f"--resume: {store.path} was begun on another virtual-time kernel: leave --resume out")
    inner = InnerRun(str(file), overrides, str(store.path))
    progress = VirtualProgress(experiment, store)
    patience = Patience(quiet_virtual_s=quiet_patience_s(experiment))
    with kept_trials(experiment, store), exclusively(store.path):
        status = enter_virtual_time(
            kernel, INNER_RUN, [inner.to_json()], files=[file, store.path], patience=patience, sign=progress.look
        )
        progress.look()
        if status:
            raise typer.Exit(status)
    return store.path


def _emulated_run(
    experiment: Experiment, source: str, substrate: str, runs: Path, *, resume: bool, keep_gradients: bool
) -> Path:
    # Mininet comes with these, which a machine that only simulates lacks.
    from runner.emulation.gpu_provisioning import check_gpus  # noqa: PLC0415
    from runner.emulation.run_dilation import decide_dilation  # noqa: PLC0415 - Mininet comes with it
    from runner.emulation.trials import run_trials  # noqa: PLC0415 - Mininet comes with it
    from testbed.testbed import usable_substrate  # noqa: PLC0415

    services = [variant.service for point in experiment.points() for variant in point.variants]
    check_memory_for_weights(service for service in services if service is not None)
    store = resumed(experiment, runs) if resume else None
    if store is not None and store.manifest["complete"]:
        return store.path
    usable_substrate(substrate)
    for point in experiment.points():
        if (missing := point.spec.compute.backend.missing()) is not None:
            raise MissingError(missing)
    with prefixed(f"{source}: "):
        check_gpus(experiment)
    if store is None:
        check_runs_folder(runs)
        dilation = decide_dilation(experiment.points(), substrate)
        store = begin_run(experiment, runs, {"dilation": dilation.factor, "capacity_bps": dilation.capacity_bps})
    factor = float(store.manifest["dilation"])
    if factor != 1:
        log(f"dilation {factor:g}: delays and compute take {factor:g} times as long, rates are divided by it")
    with kept_trials(experiment, store), exclusively(store.path):
        run_trials(experiment, store, substrate=substrate, source=source, log=log, keep_gradients=keep_gradients)
    return store.path
