"""Sample NVML during a trial. A cross-check only: busy times come from spans.

NVML's utilization is the fraction of the last 1/6 to 1 s in which a kernel ran. A waiting kernel counts, so it shows no
bubbles.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from wanbed.results.records.schema import GpuSample
from wanbed.results.records.trial_tables import GPU_TABLE, TrialTable
from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler
from wanbed.testbed.gpus.gpu_reader import GpuReadings, ReadsGpus
from wanbed.testbed.gpus.nvml import NvmlReading
from wanbed.testbed.running_testbed import RunningTestbed


class GpuSampler(Sampler[GpuReadings]):
    """Read the GPUs that hosts own.

    If a GPU cannot be read, its readings end but the trial continues: no figure needs them. Its fault is in the facts.
    """

    interval_s = 0.2
    """5 readings a second, which is how often NVML has new values."""

    def __init__(self, reader: ReadsGpus) -> None:
        self._reader = reader

    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        """Return a sampler of all GPUs that hosts own, None if they own none."""
        reader = testbed.gpu_reader()
        if reader is None:
            return None
        ending.callback(reader.close)
        return cls(reader)

    def read(self) -> GpuReadings | None:
        """Read every GPU that has answered so far; None if there is no reading."""
        return self._reader.read() or None

    def tables(self, readings: Sequence[tuple[int, GpuReadings]], _: float) -> dict[TrialTable, list[GpuSample]]:
        """Return one row per GPU and reading."""
        return {GPU_TABLE: [_sample(time_ns, *each) for time_ns, found in readings for each in found]}

    def facts(self, _: Sequence[tuple[int, GpuReadings]]) -> dict[str, Any]:
        """Return the reason why readings are missing, {} if none is."""
        faults = self._reader.faults
        return {"nvml_fault": "; ".join(faults)} if faults else {}


def _sample(time_ns: int, uuid: str, reading: NvmlReading) -> GpuSample:
    return GpuSample(
        time_ns=time_ns,
        device=uuid,
        utilization=reading.utilization,
        memory_used_bytes=reading.memory_used_bytes,
        power_w=reading.power_w,
        sm_clock_hz=reading.sm_clock_hz,
        memory_clock_hz=reading.memory_clock_hz,
        temperature_c=reading.temperature_c,
        throttled=", ".join(reading.throttled),
    )
