"""Sample NVML during a trial. A cross-check only: busy times come from spans.

NVML's utilization is the fraction of the last 1/6 to 1 s in which a kernel ran. A waiting kernel counts, so it shows no
bubbles.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from results.records.schema import GpuSample
from results.records.trial_tables import GPU_TABLE, TrialTable
from runner.emulation.telemetry.sampling import Sampler
from testbed.gpus.nvml import Nvml, NvmlError, NvmlReading, open_nvml
from testbed.running_testbed import RunningTestbed

Readings = list[tuple[str, NvmlReading]]
"""The UUID of each GPU and its NVML reading."""


class GpuSampler(Sampler[Readings]):
    """Read the GPUs with these UUIDs.

    If a GPU cannot be read, its readings end but the trial continues: no figure needs them. Its fault is in the facts.
    """

    interval_s = 0.2
    """5 readings a second, which is how often NVML has new values."""

    def __init__(self, nvml: Nvml | None, uuids: Sequence[str], fault: str | None = None) -> None:
        self._nvml = nvml
        self._uuids = [*uuids]
        self._faults = [] if fault is None else [fault]

    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        """Return a sampler of all GPUs that hosts own, None if they own none. On a rack it has only the reason."""
        uuids = [] if testbed.gpus is None else sorted({seat.uuid for seat in testbed.gpus.seats()})
        if not uuids:
            return None
        if testbed.rack is not None:
            return cls(None, uuids, "the GPUs are on machines of a rack, where nobody samples them")
        try:
            return cls(ending.enter_context(open_nvml()), uuids)
        except NvmlError as fault:
            return cls(None, uuids, str(fault))

    def read(self) -> Readings | None:
        """Read every GPU that has answered so far; None if there is no reading."""
        if self._nvml is None:
            return None
        found: Readings = []
        for uuid in [*self._uuids]:
            try:
                found.append((uuid, self._nvml.reading(uuid)))
            except NvmlError as fault:
                self._uuids.remove(uuid)
                self._faults.append(f"{uuid}: {fault}")
        return found or None

    def tables(self, readings: Sequence[tuple[int, Readings]], _: float) -> dict[TrialTable, list[GpuSample]]:
        """Return one row per GPU and reading."""
        return {GPU_TABLE: [_sample(time_ns, *each) for time_ns, found in readings for each in found]}

    def facts(self, _: Sequence[tuple[int, Readings]]) -> dict[str, Any]:
        """Return the reason why readings are missing, {} if none is."""
        return {"nvml_fault": "; ".join(self._faults)} if self._faults else {}


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
