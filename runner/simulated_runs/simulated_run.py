"""Simulate an experiment into a run's folder: begin the run or continue it, and report its progress."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from wanbed.ground.compiled_core.core_cache import present_core
from wanbed.results.reading.not_modelled import not_modelled_text
from wanbed.results.text import count_text
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.cut_connections import cut_lines
from wanbed.runner.runs.not_modelled import left_to_times, planned_for_begin, simulated_without
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.recorded.placement_searches import cut_off_lines
from wanbed.runner.runs.recorded.profile_record import deterministic_profile_lines
from wanbed.runner.runs.resuming import kept_trials, resumed
from wanbed.runner.runs.run_folder import Log, begin_run, check_runs_folder, exclusively

if TYPE_CHECKING:
    from wanbed.runner.simulated_runs.simulated_sweep import Pool


def simulated_run(
    experiment: Experiment, runs: Path, *, resume: bool, pool: "Pool", log: Log, stream: TextIO | None = None
) -> Path:
    """Simulate the missing trials of an experiment's run, and return its folder.

    ``pool`` is where trials are simulated. ``log`` gets lines on what happens, and ``stream`` (default: standard error)
    the progress.
    """
    from wanbed.runner.simulated_runs.simulated_sweep import simulate_sweep  # noqa: PLC0415 - spared by --dry-run and a refused file

    store = resumed(experiment, runs, log) if resume else None
    if store is not None and store.manifest["complete"]:
        return store.path
    if store is None:
        check_runs_folder(runs)
        store = begin_run(experiment, runs, {"dilation": 1.0, "simulator": str(present_core())})
    points = experiment.points()
    notes = (*deterministic_profile_lines(points), *cut_lines(points), *cut_off_lines(points))
    for line in (*_left_out(experiment), *notes):
        log(line)
    trials = experiment.trials()
    finished = sum(store.has_trial(*trial) for trial in trials)
    log(f"{store.path}: {count_text(len(trials), 'trial')}, {finished} of them finished before")
    with (
        exclusively(store.path),
        kept_trials(experiment, store),
        Progress(len(trials), finished, stream=stream) as progress,
    ):
        simulate_sweep(experiment, store, pool=pool, progress=progress)
        store.finish()
    return store.path


def _left_out(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each feature of the file that a simulation ignores."""
    spec, points = experiment.spec, experiment.points()
    if spec.repeats > experiment.repeats:
        yield f"a simulation gives the same every time: each trial runs once, not {spec.repeats} times"
    for line in left_to_times((point.spec for point in points), "a simulation"):
        yield f"{line}, and nothing is learnt"
    if spec.dilation not in {AUTO, 1}:
        yield f"dilation {spec.dilation:g} is for a machine that cannot keep up: a simulation needs none"
    if without := not_modelled_text(each for point in points for each in simulated_without(point.spec, point.topology)):
        yield f"not modelled, or beyond what was validated: {without}"
    if any(planned_for_begin(point.spec, point.topology) for point in points):
        yield "placement auto: the planner takes links as they are when training begins, without background"
