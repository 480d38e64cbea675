"""Follow a machine's clock during a trial, by exchanges with its driver."""

import threading
import time
from collections.abc import Callable

from wanbed.testbed.rack.clocks.clock_line import ClockExchange, ClockLine, fit_line, quickest

_AT_ENDS, _MEANWHILE = 24, 4
"""Exchanges in the bursts before and after a trial, and in one during it, which must cost little."""


class MachineClock:
    """Exchanges with one machine; ``clock_ns`` asks it for its time. ``exchange`` may be called from any thread."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._bursts: list[list[ClockExchange]] = []
        self._in_trial = False
        self._changing = threading.Lock()
        self.ahead_ns = 0
        """The lead of the machine's clock over the driver's when the trial began."""

    def begin(self) -> None:
        """Begin a trial."""
        with self._changing:
            self._bursts, self._in_trial = [self._burst(_AT_ENDS)], True
            self.ahead_ns = quickest(self._bursts[0]).offset_ns

    def meanwhile(self) -> None:
        """Exchange once more during a trial, which is a sign of life at any time."""
        with self._changing:
            burst = self._burst(_MEANWHILE)
            self._bursts += [burst] if self._in_trial else []

    def measured(self) -> int:
        """Return how far the machine's clock is ahead now. What was exchanged for that counts for the trial."""
        with self._changing:
            self._bursts.append(self._burst(_AT_ENDS))
            return quickest(self._bursts[-1]).offset_ns

    def line(self) -> ClockLine:
        """Return the line of the machine's clock during the trial until now, which goes on."""
        with self._changing:
            self._bursts.append(self._burst(_AT_ENDS))
            return fit_line(self._bursts)

    def end(self) -> None:
        """End the trial."""
        with self._changing:
            self._in_trial = False

    def _burst(self, exchanges: int) -> list[ClockExchange]:
        return [self._exchange() for _ in range(exchanges)]

    def _exchange(self) -> ClockExchange:
        asked_ns = time.monotonic_ns()
        machine_ns = self._clock_ns()
        return ClockExchange(asked_ns, machine_ns, time.monotonic_ns())
