"""Read something again and again while a trial runs: the one loop of all samplers, each in a thread of its own."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from results.records.run_store import Rows
from results.records.trial_tables import TrialTable
from runner.resolve.dilation import undilated_ns
from testbed.testbed import Testbed

Reading = TypeVar("Reading")


class Sampler(ABC, Generic[Reading]):
    """Read one thing about a running trial; the loop keeps the readings and their times."""

    interval_s: float
    """The least time between two readings, by the machine's clock."""
    max_core_share: float = 1.0
    """The share of one core that reading may take: where a reading costs more, the next one comes later."""
    max_readings: int | None = None
    """The most readings kept in memory: from then on every second one is dropped and the interval doubled, so that a
    long trial is covered evenly."""
    reads_at_end: bool = True
    """Whether there is a last reading when the ranks have ended."""

    @classmethod
    @abstractmethod
    def of(cls, testbed: Testbed, ending: ExitStack) -> Self | None:
        """Return a sampler for one trial, None where there is nothing to read; ``ending`` closes what it opened."""

    @abstractmethod
    def read(self) -> Reading | None:
        """Read once, from any thread; None is not kept. What the first reading raises keeps the trial from starting.

        What a later one raises ends the readings, and is raised when the ranks have ended.
        """

    def tables(self, readings: Sequence[tuple[int, Reading]], dilation: float) -> Mapping[TrialTable, Rows]:
        """Return the rows that the readings make, by table.

        The readings' times are nanoseconds since the trial's start and undilated, unlike durations and rates in them.
        """
        return {}

    def facts(self, readings: Sequence[tuple[int, Reading]]) -> Mapping[str, Any]:
        """Return what the readings add to trial.json."""
        return {}


@dataclass(frozen=True)
class Samples:
    """What the samplers of a trial leave; empty until the ranks have ended."""

    tables: dict[TrialTable, Rows] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def sampling(
    kinds: Sequence[type[Sampler[Any]]], testbed: Testbed, epoch_ns: int, dilation: float
) -> Iterator[Samples]:
    """Run a sampler of each kind while the block lasts. Raises what their readings raise."""
    samples, loops = Samples(), []
    with ExitStack() as ending:
        for kind in kinds:
            sampler = kind.of(testbed, ending)
            if sampler is not None:
                loops.append(ending.enter_context(SamplingLoop(sampler, epoch_ns)))
        yield samples
    for loop in loops:
        readings = [(undilated_ns(time_ns, dilation), reading) for time_ns, reading in loop.readings]
        samples.tables.update(loop.sampler.tables(readings, dilation))
        samples.facts.update(loop.sampler.facts(readings))


class SamplingLoop(Generic[Reading]):
    """Read when the block begins, again and again in a thread while it lasts, and at its end if the sampler does.

    ``readings`` are pairs of nanoseconds of the machine's clock since ``epoch_ns`` and what was read then.
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
            # Nobody looks at this thread: left alone, the run would be kept with its samples cut short.
            self._fault = fault

    def _read(self) -> None:
        before_s, before_ns = time.thread_time(), time.monotonic_ns()
        reading = self.sampler.read()
        # What is read is that of some moment between asking and hearing.
        moment_ns = (before_ns + time.monotonic_ns()) // 2
        if reading is not None:
            self.readings.append((max(0, moment_ns - self._epoch_ns), reading))
        if self.sampler.max_readings is not None and len(self.readings) >= self.sampler.max_readings:
            self.readings = self.readings[::2]
            self._interval_s *= 2
        cost_s = time.thread_time() - before_s
        self._due_s = moment_ns / 1e9 + max(self._interval_s, cost_s / self.sampler.max_core_share)
