"""Run drawn experiments in virtual time, several per guest and one guest per core, and simulate them."""

import io
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from wanbed.ground.errors import InputError, SimulationError, one_line
from wanbed.ground.files import write_whole
from wanbed.results import load
from wanbed.results.records.run_store import RunStore
from wanbed.runner.emulation.virtual_clock import enter_virtual_time
from wanbed.runner.emulation.virtual_run import quiet_patience_s
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run, check_continuable, latest_run
from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.agreement import DrawnResult, RandomAgreement
from wanbed.runner.validation.comparison import compare
from wanbed.runner.validation.experiment_traits import traits
from wanbed.runner.validation.random_batch import FAILURE, MODULE, Batch
from wanbed.runner.validation.random_experiments import DrawnExperiment
from wanbed.testbed.virtual_time.guest import GuestError
from wanbed.testbed.virtual_time.guest_place import choose_place
from wanbed.testbed.virtual_time.kernel_cache import VirtualKernel
from wanbed.testbed.virtual_time.watchdog import Patience, Watch

BATCH = 5
"""The experiments per guest: enough that booting costs little, few enough that the cores finish together."""

Stores = Mapping[int, RunStore]


class _StoppedError(Exception):
    """Raised in the thread of a guest when all runs are stopped. It ends the guest."""


def begin_runs(drawn: Sequence[DrawnExperiment], kernel: VirtualKernel, *, resume: bool) -> dict[int, RunStore]:
    """Return a run folder for each experiment by its number; with ``resume``, the folder of its latest run if any."""
    facts = {"virtual_time": {"kernel": kernel.record.release, "configuration_hash": kernel.record.configuration_hash}}
    stores = {}
    for each in drawn:
        store = latest_run(each.experiment, each.runs) if resume else None
        if store is not None and store.manifest.get("virtual_time") != facts["virtual_time"]:
            store = None
        if store is not None and not is_complete(store):
            check_continuable(each.experiment, store)
        stores[each.number] = store or begin_run(each.experiment, each.runs, {"dilation": 1.0, **facts})
    return stores


class RandomRuns:
    """Run the incomplete experiments in parallel guests, and report each finished one to ``progress``."""

    def __init__(
        self, drawn: Sequence[DrawnExperiment], stores: Stores, kernel: VirtualKernel, progress: Progress
    ) -> None:
        self._stores = stores
        self._kernel = kernel
        self._progress = progress
        waiting = [each for each in drawn if not is_complete(stores[each.number])]
        for each in waiting:
            (stores[each.number].path / FAILURE).unlink(missing_ok=True)
        self._waiting = deque(waiting)
        self._lock = threading.Lock()
        self._stopping = False

    def run(self, side_by_side: int) -> None:
        """Run all experiments in ``side_by_side`` guests. Raise the error if guests cannot start.

        The guests end with this method, also by an exception.
        """
        cores = sorted(os.sched_getaffinity(0))
        with ThreadPoolExecutor(side_by_side) as pool:
            try:
                workers = [pool.submit(self._work, cores[place % len(cores)]) for place in range(side_by_side)]
                for worker in as_completed(workers):
                    worker.result()
            finally:
                self._stopping = True

    def _work(self, core: int) -> None:
        with suppress(_StoppedError):
            while batch := self._next_batch():
                self._run(batch, core)

    def _next_batch(self) -> list[DrawnExperiment]:
        with self._lock:
            if self._stopping:
                return []
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _run(self, batch: list[DrawnExperiment], core: int) -> None:
        """Run a batch in one guest.

        If the guest ends early, its first unfinished experiment has failed and the others are queued again.
        """
        left = list(batch)

        def look() -> int:
            if self._stopping:
                raise _StoppedError
            while left and has_ended(self._stores[left[0].number]):
                self._ended(left.pop(0))
            with self._lock:
                self._progress.refresh()
            calibrated = bool(left) and self._stores[left[0].number].has_calibration(0)
            return 2 * (len(batch) - len(left)) + calibrated

        runs = Batch([(str(each.file), str(self._stores[each.number].path)) for each in batch])
        stderr = io.BytesIO()
        patience = Patience(quiet_virtual_s=max(quiet_patience_s(each.experiment) for each in batch))
        try:
            status = enter_virtual_time(
                self._kernel,
                MODULE,
                [runs.to_json()],
                files=[batch[0].file],
                watch=Watch(patience, look),
                place=replace(choose_place(), core=core),
                standard_error=stderr,
            )
            reason = f"ended with status {status}: {_last_line(stderr)}"
        except GuestError as fault:
            reason = str(fault)
        look()
        if left:
            fail_run(self._stores[left[0].number], reason)
            self._ended(left.pop(0))
            with self._lock:
                self._waiting.extendleft(reversed(left))

    def _ended(self, experiment: DrawnExperiment) -> None:
        with self._lock:
            self._progress.trial_ended_beside_others({}, experiment.name)


def is_complete(store: RunStore) -> bool:
    """Return whether a run is complete. Its manifest is read each time, because a guest writes it."""
    return bool(RunStore.open(store.path).manifest["complete"])


def has_ended(store: RunStore) -> bool:
    """Return whether a run is complete or has failed."""
    return (store.path / FAILURE).is_file() or is_complete(store)


def fail_run(store: RunStore, reason: str) -> None:
    """Write the reason why a run did not finish into its folder."""
    write_whole(store.path / FAILURE, f"{one_line(reason)}\n")


def _last_line(stderr: io.BytesIO) -> str:
    lines = [line for line in stderr.getvalue().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"


def agreement_of(seed: int, drawn: Sequence[DrawnExperiment], stores: Stores, simulate: Simulate) -> RandomAgreement:
    """Simulate the completed experiments, and compare each with its run."""
    results: list[DrawnResult] = []
    failed: dict[int, str] = {}
    for each in drawn:
        path = stores[each.number].path
        if (path / FAILURE).is_file():
            failed[each.number] = (path / FAILURE).read_text(encoding="utf-8").strip()
        elif is_complete(stores[each.number]):
            try:
                results.append(_result(each, path, simulate))
            except (InputError, SimulationError) as fault:
                failed[each.number] = str(fault)
    return RandomAgreement(seed, len(drawn), tuple(results), failed)


def _result(drawn: DrawnExperiment, path: Path, simulate: Simulate) -> DrawnResult:
    (point,) = drawn.experiment.points()
    (found,) = compare(load(path), simulate)
    return DrawnResult(drawn.number, drawn.name, traits(point), found.emulated_s, found.simulated_s, found.cautions)


Log = Callable[[str], None]


def run_random(
    seed: int,
    drawn: Sequence[DrawnExperiment],
    kernel: VirtualKernel,
    *,
    resume: bool,
    side_by_side: int,
    log: Log,
) -> Stores:
    """Run all experiments that are not complete, and return their run folders.

    An interrupt ends the guests; finished experiments are kept.
    """
    stores = begin_runs(drawn, kernel, resume=resume)
    before = sum(is_complete(store) for store in stores.values())
    log(f"seed {seed}: {len(drawn)} experiments, {before} of them finished before")
    with Progress(len(drawn), before, plain=True) as progress:
        try:
            RandomRuns(drawn, stores, kernel, progress).run(side_by_side)
        except KeyboardInterrupt:
            log("interrupted: finished experiments are reported, --resume continues with the others")
    return stores
