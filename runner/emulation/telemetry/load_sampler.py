"""Sample how busy the machine's cores are during a trial, to check whether it kept up with the emulation."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Self

from runner.emulation.telemetry.sampling import Sampler
from testbed.kernel.inside import in_virtual_time
from testbed.kernel.machine_load import CpuTimes, read_cpu_times
from testbed.testbed import Testbed

SATURATED = 0.95
"""From this load on, packets and ranks wait for cores."""


@dataclass(frozen=True)
class MachineLoad:
    """The load of the machine during a trial; all values are fractions.

    ``busy`` is the mean load of the cores. ``saturated`` is the fraction of quarter seconds with a load above 95 %.
    ``network`` is the fraction of the trial that one core spent on the emulated network, None if it is not known.
    """

    busy: float
    saturated: float
    network: float | None


class LoadSampler(Sampler[CpuTimes]):
    """Read the machine's CPU times. ``network_cpu_time_s`` returns the CPU seconds of the network so far."""

    interval_s = 0.25
    reads_at_end = False

    def __init__(self, network_cpu_time_s: Callable[[], float | None]) -> None:
        self._network_cpu_time_s = network_cpu_time_s
        self._network_s = network_cpu_time_s()
        self._began_s = time.monotonic()

    @classmethod
    def of(cls, testbed: Testbed, _: ExitStack) -> Self | None:
        """Return a sampler of this machine, None in virtual time, where compute costs no time."""
        return None if in_virtual_time() else cls(testbed.network_cpu_time_s)

    def read(self) -> CpuTimes:
        """Read the current CPU times."""
        return read_cpu_times()

    def facts(self, readings: Sequence[tuple[int, CpuTimes]]) -> dict[str, Any]:
        """Return the load of the trial, null if the trial was shorter than a quarter second."""
        load = self.load([times for _, times in readings])
        return {"machine_load": None if load is None else asdict(load)}

    def load(self, times: Sequence[CpuTimes]) -> MachineLoad | None:
        """Return the load between the first and the last of these times, None if they span no window."""
        windows = [busy for one, other in pairwise(times) if (busy := other.busy_since(one)) is not None]
        if not windows:
            return None
        return MachineLoad(
            times[-1].busy_since(times[0]) or 0.0,
            sum(window > SATURATED for window in windows) / len(windows),
            self._network_share(),
        )

    def _network_share(self) -> float | None:
        spent_s = self._network_cpu_time_s()
        if spent_s is None or self._network_s is None:
            return None
        return (spent_s - self._network_s) / (time.monotonic() - self._began_s)
