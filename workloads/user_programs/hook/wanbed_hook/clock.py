"""Convert the profiler's times to CLOCK_MONOTONIC, by moments seen on both clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Sighting(NamedTuple):
    """A moment on the profiler's clock that lay between two readings of CLOCK_MONOTONIC. Nanoseconds."""

    earliest_ns: int
    latest_ns: int
    profiler_ns: int

    @property
    def monotonic_ns(self) -> int:
        """The middle of the readings."""
        return (self.earliest_ns + self.latest_ns) // 2

    @property
    def error_ns(self) -> int:
        """The error of the middle."""
        return self.latest_ns - self.monotonic_ns


class ProfilerClock:
    """Times between, before and after the best sighting of the first and of the last moments, on a straight line."""

    def __init__(self, first: Sequence[Sighting], last: Sequence[Sighting]) -> None:
        self._first, self._last = (min(each, key=lambda sighting: sighting.error_ns) for each in (first, last))
        if self._last.profiler_ns <= self._first.profiler_ns:
            raise ValueError("the profiler's clock did not advance while it recorded")
        self.error_ns = max(self._first.error_ns, self._last.error_ns)
        """The largest error of a converted time between the sightings."""

    def monotonic_ns(self, profiler_ns: int) -> int:
        """Return the time on CLOCK_MONOTONIC."""
        passed_ns = self._last.monotonic_ns - self._first.monotonic_ns
        profiler_passed_ns = self._last.profiler_ns - self._first.profiler_ns
        return self._first.monotonic_ns + (profiler_ns - self._first.profiler_ns) * passed_ns // profiler_passed_ns
