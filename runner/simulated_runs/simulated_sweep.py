"""The engine ``simulate``: run every trial of an experiment, several at a time, into a run's store."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wanbed.results.records.run_store import RunStore
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.progress import Progress
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
