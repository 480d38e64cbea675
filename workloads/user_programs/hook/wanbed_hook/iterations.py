"""Count iterations and know what comes at the end of each."""

from __future__ import annotations


class Iterations:
    """The iterations of one process. The first begins when this object is created."""

    def __init__(self, iterations: int, profile: int, start_ns: int) -> None:
        self._iterations = iterations
        self._first_profiled = iterations - profile
        self._start_ns = start_ns
        self.current = 0
        """The number of the iteration that goes on."""

    @property
    def is_profiled(self) -> bool:
        """Return whether the current iteration is one of those that the profiler records."""
        return self.current >= self._first_profiled

    @property
    def begins_profile(self) -> bool:
        """Return whether the current iteration is the first that the profiler records."""
        return self.current == self._first_profiled and not self.is_over

    @property
    def is_over(self) -> bool:
        """Return whether all iterations have ended."""
        return self.current >= self._iterations

    def end(self, now_ns: int) -> tuple[int, int, int]:
        """End the current iteration. Return its number, its start and its end."""
        ended = self.current, self._start_ns, now_ns
        self.current += 1
        self._start_ns = now_ns
        return ended

    def begin_later(self, now_ns: int) -> None:
        """Let the current iteration begin now: what was done since the end of the last is not the program's."""
        self._start_ns = now_ns
