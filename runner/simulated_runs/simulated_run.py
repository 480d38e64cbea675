"""Simulate an experiment into a run's folder: begin the run or continue it, simulate its trials several at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from wanbed.ground.compiled_core.core_cache import present_core
from wanbed.results.reading.not_modelled import not_modelled_text
from wanbed.results.records.run_store import RunStore
from wanbed.results.text import count_text
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.caveats import caveat_lines
from wanbed.runner.runs.not_modelled import left_to_times, planned_for_begin, simulated_without
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import Log, begin_run, check_runs_folder, exclusively, kept_trials, resumed
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial
from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.simulator.variant_simulation import simulate_variant


class Pool(Protocol):
    """A pool of workers that simulates several trials at a time."""

    def simulate_all(self, trials: Sequence[SimulatedTrial], run: Path, progress: Progress, simulate: Simulate) -> None:
        """Simulate the trials into the run's folder.

        Raises what ``simulate_sweep`` does. Trials that had finished by then are in the folder, and of the others
        nothing is left, running or half written.
        """


def simulated_run(
    experiment: Experiment, runs: Path, *, resume: bool, pool: Pool, log: Log, stream: TextIO | None = None
) -> Path:
    """Simulate the missing trials of an experiment's run, and return its folder.

    ``pool`` is where trials are simulated. ``log`` gets lines on what happens, and ``stream`` (default: standard error)
    the progress.
    """
    store = resumed(experiment, runs, log) if resume else None
    if store is not None and store.manifest["complete"]:
        return store.path
    if store is None:
        check_runs_folder(runs)
        store = begin_run(experiment, runs, {"dilation": 1.0, "simulator": str(present_core())})
    points = experiment.points()
    for line in (*_left_out(experiment), *caveat_lines(points)):
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


def simulate_sweep(
    experiment: Experiment,
    store: RunStore,
    *,
    pool: Pool,
    progress: Progress,
    simulate: Simulate = simulate_variant,
) -> None:
    """Simulate every trial that the store lacks in the pool.

    Raises SimulationError, one line with sweep point and variant, for a schedule that fails or deadlocks, TrialError
    for a process that is killed, and OSError where the store cannot be written.
    """
    pending = [
        SimulatedTrial.of(trial, point)
        for point in experiment.points()
        for trial in point.trials()
        if not store.has_trial(*trial)
    ]
    pool.simulate_all(pending, store.path, progress, simulate)


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
