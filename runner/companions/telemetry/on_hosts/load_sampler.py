"""Sample how busy machines' cores are during a trial, to check whether they kept up with the emulation."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Self

from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.kernel.machine_load import CpuTimes
from wanbed.testbed.running_testbed import RunningTestbed

SATURATED = 0.95
"""From this load on, packets and ranks wait for cores."""


@dataclass(frozen=True)
class SampledLoad:
    """The load of a machine during a trial, or the measured part of it; all values are fractions.

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


Loads = Mapping[str, LoadReading]
"""A reading of each machine, by the names that ``RunningTestbed.cpu_times`` has."""


class LoadSampler(Sampler[Loads]):
    """Read the CPU times of every machine. The busiest one counts: packets and ranks wait for its cores."""

    interval_s = 0.25
    reads_at_end = False
    of_measured_part = True

    def __init__(self, testbed: RunningTestbed) -> None:
        self._testbed = testbed

    @classmethod
    def of(cls, testbed: RunningTestbed, _: ExitStack) -> Self | None:
        """Return a sampler of all machines, None in virtual time, where compute costs no time."""
        return None if in_virtual_time() else cls(testbed)

    def read(self) -> Loads:
        """Read the current CPU times."""
        time_s, cores = time.monotonic(), self._testbed.cpu_times()
        network_s = self._testbed.network_cpu_time_s()
        return {name: LoadReading(time_s, each, network_s) for name, each in cores.items()}

    def facts(self, readings: Sequence[tuple[int, Loads]]) -> dict[str, Any]:
        """Return the load of the busiest machine, null for a trial below a quarter second, and of each with a name."""
        machines = readings[0][1] if readings else {}
        found = {name: machine_load([reading[name] for _, reading in readings]) for name in machines}
        loads = {name: load for name, load in found.items() if load is not None}
        busiest = max(loads.values(), key=lambda load: (load.saturated, load.busy), default=None)
        named = {"machine_loads": {name: asdict(load) for name, load in loads.items()}} if any(machines) else {}
        return {"machine_load": None if busiest is None else asdict(busiest), **named}


def machine_load(readings: Sequence[LoadReading]) -> SampledLoad | None:
    """Return the load between the first and the last of these readings, None if they span no window."""
    windows = [busy for one, other in pairwise(readings) if (busy := other.cores.busy_since(one.cores)) is not None]
    if not windows:
        return None
    first, last = readings[0], readings[-1]
    network = None
    if first.network_s is not None and last.network_s is not None:
        network = (last.network_s - first.network_s) / (last.time_s - first.time_s)
    return SampledLoad(
        last.cores.busy_since(first.cores) or 0.0,
        sum(window > SATURATED for window in windows) / len(windows),
        network,
    )
