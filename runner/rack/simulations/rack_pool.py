"""Simulate trials on the machines of a rack: they simulate and write, this process stores the files that come back."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from wanbed.results.records.run_store import remove_partial_trials, write_trial_files
from wanbed.runner.rack.same_sources import rack_at
from wanbed.runner.rack.shipped.user_modules import schedules_of
from wanbed.runner.rack.simulations.node_work import SimulatedTrials, simulate_trials
from wanbed.runner.rack.simulations.spread_tasks import SpreadTasks, Tasks
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import Log
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial
from wanbed.runner.simulator.simulation import Simulate

_REFRESH_S = 0.5
_BATCH_S = 0.25
"""The intended duration of a task. Several short trials share a task, because each task costs some milliseconds."""
_WAITING = 2
"""Tasks that wait at a time, for each that runs, so that no CPU waits for this process."""


class RackPool:
    """The CPUs of a rack, see ``wanbed.runner.simulated_runs.simulated_run.Pool``."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def simulate_all(self, trials: Sequence[SimulatedTrial], run: Path, progress: Progress, simulate: Simulate) -> None:
        """Simulate the trials into the run's folder, as ``Pool`` says."""
        left = deque(trials)
        at_work: dict[Any, list[SimulatedTrial]] = {}
        trial_s = _BATCH_S
        try:
            while left or at_work:
                slots = max(self._tasks.at_a_time, 1)
                size = max(min(int(_BATCH_S / trial_s), len(left) // (2 * slots)), 1)
                while left and len(at_work) < _WAITING * slots:
                    batch = [left.popleft() for _ in range(min(size, len(left)))]
                    started = self._tasks.start(partial(simulate_trials, batch, simulate), _schedules_of(batch))
                    at_work[started] = batch
                ready = self._tasks.ended(at_work, _REFRESH_S)
                if not ready:
                    progress.refresh()
                for reference in ready:
                    batch = at_work.pop(reference)
                    trial_s = _stored(run, batch, self._tasks.result(reference, str(batch[0])), progress)
        finally:
            self._tasks.cancel(at_work)
            remove_partial_trials(run)


def _schedules_of(batch: Sequence[SimulatedTrial]) -> tuple[str, ...]:
    """Return the schedules of a user that these trials follow."""
    return schedules_of(trial.variant for trial in batch if isinstance(trial.variant, PipelineVariant))


def _stored(run: Path, batch: Sequence[SimulatedTrial], simulated: SimulatedTrials, progress: Progress) -> float:
    """Keep the trials of a batch. Return how long one took, or raise the failure that ended it."""
    for trial, files in zip(batch, simulated.files, strict=False):
        write_trial_files(run, trial.id, files)
        progress.trial_ended_beside_others(trial.values, trial.variant.name)
    if simulated.fault is not None:
        raise simulated.fault
    return simulated.elapsed_s / len(batch)


@contextmanager
def rack_pool(address: str, log: Log) -> Iterator[RackPool]:
    """Yield the pool of the rack at ``address`` for the duration of the block. Raises what ``rack_at`` does."""
    with rack_at(address, log) as rack:
        yield RackPool(SpreadTasks(rack))
