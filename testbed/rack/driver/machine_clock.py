"""Follow machines' clocks during a trial by exchanges with the driver, and put logged times on its time line."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.testbed.rack.clock_line import ClockExchange, ClockLine, fit_line, quickest

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


@dataclass(frozen=True)
class TimeLine:
    """The clocks of one trial: a line for each machine, and how far ahead its clock was taken to be for its epoch.

    ``epoch_ns`` is the trial's start on the driver's clock, ``machine_of`` the machine of each host.
    """

    epoch_ns: int
    machine_of: Mapping[str, str]
    lines: Mapping[str, ClockLine]
    ahead_ns: Mapping[str, int]

    def trial_ns(self, host: str, logged_ns: int) -> int:
        """Return when that was after the trial's start, by the driver's clock."""
        machine = self.machine_of[host]
        return self.lines[machine].driver_ns(self.epoch_ns + self.ahead_ns[machine] + logged_ns) - self.epoch_ns

    def error_ns(self, host: str) -> int:
        """Return the bound of the error of a time of this host."""
        return self.lines[self.machine_of[host]].error_ns

    def facts(self) -> dict[str, Any]:
        """Return the clocks as in a trial's record."""
        return {machine: line.facts() for machine, line in self.lines.items()}


def time_line(clocks: Mapping[str, MachineClock], machine_of: Mapping[str, str], epoch_ns: int) -> TimeLine:
    """Measure the machines' clocks, and return the time line until now of a trial that began at ``epoch_ns``."""
    lines = {name: clock.line() for name, clock in clocks.items()}
    return TimeLine(epoch_ns, machine_of, lines, {name: clock.ahead_ns for name, clock in clocks.items()})
