"""Run the samplers of a trial, each with the same loop in its own thread."""

import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from wanbed.results.records.run_store import Rows
from wanbed.results.records.trial_table import TrialTable
from wanbed.runner.resolve.dilation import undilated_ns
from wanbed.testbed.running_testbed import RunningTestbed

Reading = TypeVar("Reading")


class Sampler(ABC, Generic[Reading]):
    """Read one aspect of a running trial. The loop stores the readings and their times."""

    interval_s: float
    """The minimum time between two readings, on the machine's clock."""
    max_core_share: float = 1.0
    """The fraction of one core that readings may take. After a more expensive reading the next one comes later."""
    max_readings: int | None = None
    """The most readings in memory, None for no limit. At the limit every second reading is dropped and the interval
    doubles, so that a long trial is covered evenly."""
    reads_at_end: bool = True
    """Tell whether to read once more after the ranks have ended."""
    of_measured_part: bool = False
    """Tell whether the facts come from the readings of the measured part alone, where a trial says which that is."""

    @classmethod
    @abstractmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        """Return a sampler for one trial, None if there is nothing to read. ``ending`` closes what it opens."""

    @abstractmethod
    def read(self) -> Reading | None:
        """Read once. None is not stored. This may be called from any thread.

        If the first reading raises an error, the trial does not start. An error of a later one ends the readings, and
        is raised when the ranks have ended.
        """

    def tables(self, readings: Sequence[tuple[int, Reading]], dilation: float) -> Mapping[TrialTable, Rows]:
        """Return the table rows of the readings, by table.

        The times of the readings are undilated nanoseconds since the trial's start. Durations and rates inside the
        readings are still dilated.
        """
        return {}

    def facts(self, readings: Sequence[tuple[int, Reading]]) -> Mapping[str, Any]:
        """Return the entries of the readings for trial.json."""
        return {}


@dataclass
class Samples:
    """The readings of all samplers of a trial, by their undilated times; empty until the ranks have ended.

    ``measured_ns`` may be set: begin and end of the trial's measured part, None for the whole trial.
    """

    dilation: float = 1.0
    measured_ns: tuple[int, int] | None = None
    readings: list[tuple[Sampler[Any], Sequence[tuple[int, Any]]]] = field(default_factory=list)

    @property
    def tables(self) -> dict[TrialTable, Rows]:
        """The rows of all readings, by table."""
        found: dict[TrialTable, Rows] = {}
        for sampler, readings in self.readings:
            found |= sampler.tables(readings, self.dilation)
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of all readings, or of those of the measured part."""
        found: dict[str, Any] = {}
        for sampler, readings in self.readings:
            found |= sampler.facts(self.measured(readings) if sampler.of_measured_part else readings)
        return found

    def measured(self, readings: Sequence[tuple[int, Reading]]) -> Sequence[tuple[int, Reading]]:
        """Return the readings of the measured part, with the last one before it."""
        if self.measured_ns is None:
            return readings
        begin_ns, end_ns = self.measured_ns
        times_ns = [time_ns for time_ns, _ in readings]
        return readings[max(0, bisect_right(times_ns, begin_ns) - 1) : bisect_right(times_ns, end_ns)]


@contextmanager
def sampling(
    kinds: Sequence[type[Sampler[Any]]], testbed: RunningTestbed, epoch_ns: int, dilation: float
) -> Iterator[Samples]:
    """Run a sampler of each kind inside the block. Raise the errors of their readings."""
    samples, loops = Samples(dilation), []
    with ExitStack() as ending:
        for kind in kinds:
            sampler = kind.of(testbed, ending)
            if sampler is not None:
                loops.append(ending.enter_context(SamplingLoop(sampler, epoch_ns)))
        yield samples
    for loop in loops:
        readings = [(undilated_ns(time_ns, dilation), reading) for time_ns, reading in loop.readings]
        samples.readings.append((loop.sampler, readings))


class SamplingLoop(Generic[Reading]):
    """Read at the start of the block, repeatedly in a thread during it, and at its end with ``reads_at_end``.

    ``readings`` are pairs: nanoseconds of the machine's clock since ``epoch_ns``, and the reading.
    """

    def __init__(self, sampler: Sampler[Reading], epoch_ns: int) -> None:
        self.sampler = sampler
        self.readings: list[tuple[int, Reading]] = []
        self._epoch_ns = epoch_ns
        self._interval_s = sampler.interval_s
        self._due_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(sampler).__name__, daemon=True)
        self._fault: Exception | None = None

    def __enter__(self) -> Self:
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault
        if self.sampler.reads_at_end:
            self._read()

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._due_s - time.monotonic()):
                self._read()
        except Exception as fault:
            # Raised again in __exit__. Otherwise the trial would be stored with incomplete samples.
            self._fault = fault

    def _read(self) -> None:
        before_s, before_ns = time.thread_time(), time.monotonic_ns()
        reading = self.sampler.read()
        # The reading belongs to some moment between the call and its return.
        moment_ns = (before_ns + time.monotonic_ns()) // 2
        if reading is not None:
            self.readings.append((max(0, moment_ns - self._epoch_ns), reading))
        if self.sampler.max_readings is not None and len(self.readings) >= self.sampler.max_readings:
            self.readings = self.readings[::2]
            self._interval_s *= 2
        cost_s = time.thread_time() - before_s
        self._due_s = moment_ns / 1e9 + max(self._interval_s, cost_s / self.sampler.max_core_share)
