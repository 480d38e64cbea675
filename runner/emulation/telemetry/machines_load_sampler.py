"""Sample how busy the cores of every machine of a rack are during a trial."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Self

from wanbed.runner.emulation.telemetry.load_sampler import LoadReading, machine_load
from wanbed.runner.emulation.telemetry.sampling import Sampler
from wanbed.testbed.kernel.machine_load import CpuTimes
from wanbed.testbed.running_testbed import RunningTestbed

Loads = Mapping[str, LoadReading]


class MachinesLoadSampler(Sampler[Loads]):
    """Read the CPU times of every machine. The busiest one counts: packets and ranks wait for its cores."""

    interval_s = 0.25
    reads_at_end = False
    of_measured_part = True

    def __init__(self, cpu_times: Callable[[], Mapping[str, CpuTimes]]) -> None:
        self._cpu_times = cpu_times

    @classmethod
    def of(cls, testbed: RunningTestbed, _: ExitStack) -> Self | None:
        """Return a sampler of a rack's machines, None where all hosts are on this machine."""
        return None if testbed.rack is None else cls(testbed.rack.cpu_times)

    def read(self) -> Loads:
        """Read the current CPU times."""
        return {name: LoadReading(time.monotonic(), cores, None) for name, cores in self._cpu_times().items()}

    def facts(self, readings: Sequence[tuple[int, Loads]]) -> dict[str, Any]:
        """Return the load of every machine, and that of the busiest as the trial's; null for a very short trial."""
        machines = readings[0][1] if readings else {}
        loads = {name: machine_load([reading[name] for _, reading in readings]) for name in machines}
        known = {name: load for name, load in loads.items() if load is not None}
        busiest = max(known.values(), key=lambda load: (load.saturated, load.busy), default=None)
        return {
            "machine_load": None if busiest is None else asdict(busiest),
            "machine_loads": {name: asdict(load) for name, load in known.items()},
        }
