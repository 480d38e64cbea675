"""Put the times that machines have logged on the driver's time line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.testbed.rack.clocks.clock_line import ClockLine
from wanbed.testbed.rack.driver.machine_clock import MachineClock


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
