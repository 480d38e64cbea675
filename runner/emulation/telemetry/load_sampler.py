"""Sample how busy the machine's cores are during a trial, to check whether it kept up with the emulation."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Self

from wanbed.runner.emulation.telemetry.sampling import Sampler
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.kernel.machine_load import CpuTimes, read_cpu_times
from wanbed.testbed.running_testbed import RunningTestbed

SATURATED = 0.95
"""From this load on, packets and ranks wait for cores."""


@dataclass(frozen=True)
class MachineLoad:
    """The load of the machine during a trial, or the measured part of it; all values are fractions.

    ``busy`` is the mean load of the cores. ``saturated`` is the fraction of quarter seconds with a load above 95 %.
    ``network`` is the fraction of the trial that one core spent on the emulated network, None if it is not known.
    """

    busy: float
    saturated: float
    network: float | None


@dataclass(frozen=True)
class LoadReading:
    """CPU times at one moment: of all cores, and what the network took so far, None if it is not known."""

    time_s: float
    cores: CpuTimes
    network_s: float | None


class LoadSampler(Sampler[LoadReading]):
    """Read the machine's CPU times. ``network_cpu_time_s`` returns the CPU seconds of the network so far."""

    interval_s = 0.25
    reads_at_end = False
    of_measured_part = True

    def __init__(self, network_cpu_time_s: Callable[[], float | None]) -> None:
        self._network_cpu_time_s = network_cpu_time_s

    @classmethod
    def of(cls, testbed: RunningTestbed, _: ExitStack) -> Self | None:
        """Return a sampler of this machine, None in virtual time, where compute costs no time, and on a rack."""
        return None if in_virtual_time() or testbed.rack is not None else cls(testbed.network_cpu_time_s)

    def read(self) -> LoadReading:
        """Read the current CPU times."""
        return LoadReading(time.monotonic(), read_cpu_times(), self._network_cpu_time_s())

    def facts(self, readings: Sequence[tuple[int, LoadReading]]) -> dict[str, Any]:
        """Return the load of the trial, null if the trial was shorter than a quarter second."""
        load = machine_load([reading for _, reading in readings])
        return {"machine_load": None if load is None else asdict(load)}


def machine_load(readings: Sequence[LoadReading]) -> MachineLoad | None:
    """Return the load between the first and the last of these readings, None if they span no window."""
    windows = [busy for one, other in pairwise(readings) if (busy := other.cores.busy_since(one.cores)) is not None]
    if not windows:
        return None
    first, last = readings[0], readings[-1]
    network = None
    if first.network_s is not None and last.network_s is not None:
        network = (last.network_s - first.network_s) / (last.time_s - first.time_s)
    return MachineLoad(
        last.cores.busy_since(first.cores) or 0.0,
        sum(window > SATURATED for window in windows) / len(windows),
        network,
    )
