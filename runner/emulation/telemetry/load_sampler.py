"""Check whether the machine kept up with what it emulated: sample how busy its cores are while a trial runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from testbed.kernel.inside import in_virtual_time
from testbed.kernel.machine_load import read_cpu_times

SATURATED = 0.95
"""A machine this busy makes packets and ranks wait for cores."""

_WINDOW_S = 0.25


@dataclass(frozen=True)
class MachineLoad:
    """The load of a trial: ``busy`` is its mean, ``saturated`` the share of quarter seconds that were busier than 95 %.

    ``network`` is the share of the trial for which the one core that carries the network did so, None where that is not
    known.
    """

    busy: float
    saturated: float
    network: float | None


class LoadSampler:
    """Sample the machine's load: call ``look`` several times a second from the start of a trial to its end.

    ``network_cpu_time_s`` returns the CPU seconds that the network has cost so far.
    """

    def __init__(self, network_cpu_time_s: Callable[[], float | None]) -> None:
        self._network_cpu_time_s = network_cpu_time_s
        self._network_s = network_cpu_time_s()
        self._first = self._last = read_cpu_times()
        self._began_s = self._looked_s = time.monotonic()
        self._windows: list[float] = []

    def look(self) -> None:
        """Close the window if it is long enough. In virtual time there is none: no core is ever short there."""
        if in_virtual_time():
            return
        now_s = time.monotonic()
        if now_s - self._looked_s < _WINDOW_S:
            return
        now = read_cpu_times()
        busy = now.busy_since(self._last)
        if busy is not None:
            self._windows.append(busy)
        self._last, self._looked_s = now, now_s

    def load(self) -> MachineLoad | None:
        """Return the load seen so far; None before the first window is closed."""
        if not self._windows:
            return None
        return MachineLoad(
            self._last.busy_since(self._first) or 0.0,
            sum(window > SATURATED for window in self._windows) / len(self._windows),
            self._network_share(),
        )

    def _network_share(self) -> float | None:
        spent_s = self._network_cpu_time_s()
        if spent_s is None or self._network_s is None:
            return None
        return (spent_s - self._network_s) / (time.monotonic() - self._began_s)
