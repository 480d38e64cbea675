"""Spread simulations over a rack, the trials of a sweep and the candidates of a plan, as tasks of Ray.

Ray starts a task anew when its machine leaves. Machines simulate trials and write their files, and this process stores
the files that come back. Of the candidates of a plan, those that are likely to be asked for are priced ahead of time.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from wanbed.ground.errors import MissingError, WanbedError
from wanbed.results.records.run_store import read_trial_files, remove_partial_trials, write_trial_files
from wanbed.runner.planner.effort import Effort
from wanbed.runner.planner.pricing import Pricer, Spread
from wanbed.runner.planner.search_space import Candidate, Price
from wanbed.runner.rack_runs import on_machine
from wanbed.runner.rack_runs.rack import Rack, rack_at
from wanbed.runner.rack_runs.user_modules import packed_modules, schedules_of
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import Log
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial, simulate_into
from wanbed.runner.simulator.simulation import Simulate
from wanbed.testbed.rack.machine.facts import sources_hash

_STARTED_ANEW = 3
_NONE_LEFT_S = 30.0
"""For how long a rack may be without any CPU before nothing is expected of it."""


_REFRESH_S = 0.5
_BATCH_S = 0.25
"""The intended duration of a task. Several short trials share a task, because each task costs some milliseconds."""
_WAITING = 2
"""Tasks that wait at a time, for each that runs, so that no CPU waits for this process."""
_LOOK_S = 0.1


class Tasks(Protocol):
    """Functions that are called elsewhere, several at a time. A reference stands for the result of one."""

    @property
    def at_a_time(self) -> int:
        """The number of tasks that run at a time, at this moment."""

    def start(self, function: Callable[[], Any], schedules: tuple[str, ...] = ()) -> Any:
        """Have a function called, which needs these schedules of a user's. Return a reference to its result.

        Raise InputError if one of them cannot be sent.
        """

    def ended(self, references: Collection[Any], timeout_s: float) -> list[Any]:
        """Return the references of what has ended, after ``timeout_s`` at the latest.

        Raise MissingError if nothing can end any more.
        """

    def running(self, references: Collection[Any]) -> int:
        """Return how many of these have not ended."""

    def result(self, reference: Any, what: str) -> Any:
        """Return what a function has returned. ``what`` describes it where it has been lost.

        Raise TrialError if it is lost each time, MissingError where it is refused, or what it has raised.
        """

    def cancel(self, references: Collection[Any]) -> None:
        """End what nobody waits for."""


class SpreadTasks:
    """Tasks on the machines of a rack, one a CPU, see ``Tasks``."""

    def __init__(self, rack: Rack) -> None:
        import ray  # noqa: PLC0415
        from ray import cloudpickle  # noqa: PLC0415

        cloudpickle.register_pickle_by_value(on_machine)
        self._rack, self._ray, self._pickle = rack, ray, cloudpickle.dumps
        self._remote = ray.remote(on_machine.run_here).options(
            num_cpus=1, max_retries=_STARTED_ANEW, scheduling_strategy="SPREAD"
        )
        self._idle_s = 0.0
        self._modules: dict[tuple[str, ...], Any] = {}

    @property
    def at_a_time(self) -> int:
        """The CPUs of the machines that are there now."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def start(self, function: Callable[[], Any], schedules: tuple[str, ...] = ()) -> Any:
        """Have a function called on some machine, which is sent the modules of the schedules."""
        modules = self._sent_modules(schedules) if schedules else None
        return self._remote.remote(self._rack.sent, sources_hash(), modules, self._pickle(function))

    def ended(self, references: Collection[Any], timeout_s: float) -> list[Any]:
        """Return what has ended. Raise MissingError if all machines have left for some time."""
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=timeout_s)
        self._idle_s = 0.0 if ready or self.at_a_time else self._idle_s + timeout_s
        if self._idle_s >= _NONE_LEFT_S:
            raise MissingError(
                f"--rack {self._rack.cluster.address}: no machine with a CPU has been there for {_NONE_LEFT_S:.0f} s: "
                "look at `ray status`; --resume continues with what is missing"
            )
        return list(ready)

    def running(self, references: Collection[Any]) -> int:
        """Return how many of these have not ended."""
        if not references:
            return 0
        _, unended = self._ray.wait(list(references), num_returns=len(references), timeout=0)
        return len(unended)

    def result(self, reference: Any, what: str) -> Any:
        """Return what a function has returned, or raise as ``Tasks.result`` says."""
        from ray import exceptions  # noqa: PLC0415

        try:
            refusal, result = self._ray.get(reference)
        except exceptions.RayTaskError as fault:
            raise fault.cause from fault
        except exceptions.OutOfMemoryError:
            raise TrialError(
                f"{what}: not enough memory on its machine: start that with fewer --num-cpus, or give a smaller "
                "experiment"
            ) from None
        except exceptions.RayError as fault:
            reason = " ".join(str(fault).split())[:200]
            raise TrialError(f"{what}: its process was lost {_STARTED_ANEW + 1} times: {reason}") from None
        if refusal is not None:
            raise MissingError(f"--rack {self._rack.cluster.address}: {refusal}")
        return result

    def _sent_modules(self, schedules: tuple[str, ...]) -> Any:
        """Return a reference to the modules, an object that Ray takes to each machine once."""
        if schedules not in self._modules:
            self._modules[schedules] = self._ray.put(self._pickle(packed_modules(schedules, ())))
        return self._modules[schedules]

    def cancel(self, references: Collection[Any]) -> None:
        """End tasks whose results nobody waits for."""
        for reference in references:
            self._ray.cancel(reference)


@dataclass(frozen=True)
class SimulatedTrials:
    """The files of the trials that were simulated, in their order, and the failure that ended it, None without one."""

    files: Sequence[Mapping[str, bytes]]
    fault: Exception | None
    elapsed_s: float


def simulate_trials(trials: Sequence[SimulatedTrial], simulate: Simulate) -> SimulatedTrials:
    """Simulate trials one after the other until the first foreseen failure."""
    started_s = time.perf_counter()
    files: list[Mapping[str, bytes]] = []
    fault: Exception | None = None
    with TemporaryDirectory() as folder:
        for trial in trials:
            fault = simulate_into(Path(folder), trial, simulate)
            if fault is not None:
                break
            files.append(read_trial_files(Path(folder), trial.id))
    return SimulatedTrials(files, fault, time.perf_counter() - started_s)


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


class RackPricing:
    """The CPUs of a rack as the pricing of one search, see ``wanbed.runner.planner.pricing.AheadPricing``.

    Candidates are converted to variants here, because what that reads may be only on this machine.
    """

    def __init__(
        self,
        tasks: Tasks,
        pricer: Pricer,
        resolve: Callable[[Candidate], PipelineVariant],
        effort: Effort,
    ) -> None:
        self._tasks, self._pricer, self._resolve, self._effort = tasks, pricer, resolve, effort
        self._started: dict[Candidate, Any] = {}
        self._expected: Iterator[Candidate] = iter(())

    def __call__(self, candidate: Candidate) -> Price:
        """Return the price of a candidate, once a machine has simulated it."""
        # No machine tells how far it is.
        self._effort.simulated = None
        if candidate not in self._started:
            self._start(candidate)
        reference = self._started[candidate]
        while not self._tasks.ended([reference], _LOOK_S):
            self._start_expected()
            self._effort.check()
        del self._started[candidate]
        price: Price = self._tasks.result(reference, f"the candidate in {', '.join(candidate.datacenters)}")
        return price

    def expect(self, candidates: Iterator[Candidate]) -> None:
        """Price these as far as there is room, see ``AheadPricing``."""
        self._expected = candidates
        self._start_expected()

    def end(self) -> None:
        """End what nobody has asked for."""
        self._tasks.cancel(self._started.values())

    def _start(self, candidate: Candidate) -> None:
        variant = self._resolve(candidate)
        self._started[candidate] = self._tasks.start(partial(self._pricer.price, variant), schedules_of([variant]))

    def _start_expected(self) -> None:
        room = self._tasks.at_a_time - self._tasks.running(self._started.values())
        while room > 0 and (candidate := next(self._expected, None)) is not None:
            if candidate in self._started:
                continue
            try:
                self._start(candidate)
            except WanbedError:
                # It fails again, and is reported, if it is asked for.
                continue
            room -= 1


def rack_spread_of(tasks: Tasks) -> Spread:
    """Return what prices the candidates of one search after the other by these tasks."""

    @contextmanager
    def spread(
        pricer: Pricer, resolve: Callable[[Candidate], PipelineVariant], effort: Effort
    ) -> Iterator[RackPricing]:
        pricing = RackPricing(tasks, pricer, resolve, effort)
        try:
            yield pricing
        finally:
            pricing.end()

    return spread


@contextmanager
def rack_spread(address: str, log: Log) -> Iterator[Spread]:
    """Yield what prices candidates on the rack at ``address``, for the block. Raises what ``rack_at`` does."""
    with rack_at(address, log) as rack:
        yield rack_spread_of(SpreadTasks(rack))
