"""Sample NVML's readings of the GPUs during a trial. They are a cross-check only: busy times come from spans.

NVML's utilization says that some kernel ran in the last 1/6 to 1 s, and a kernel that waits counts: it sees no bubble.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from results.records.schema import GpuSample
from runner.resolve.dilation import undilated_ns
from testbed.gpus.nvml import Nvml, NvmlError, NvmlReading, open_nvml

INTERVAL_S = 0.2
"""5 samples a second, as often as NVML has new readings."""


@dataclass
class GpuReadings:
    """Readings, (time since the epoch, UUID, reading) by time; ``fault`` is why there are none, or no more."""

    readings: list[tuple[int, str, NvmlReading]] = field(default_factory=list)
    fault: str | None = None


@contextmanager
def sampling_gpus(uuids: Sequence[str], epoch_ns: int, interval_s: float = INTERVAL_S) -> Iterator[GpuReadings]:
    """Read the GPUs of these UUIDs in a thread of its own while the block lasts, and once at its begin and end.

    An NVML that does not answer ends the readings and not the trial, whose figures need none of them.
    """
    with ExitStack() as stack:
        try:
            nvml = stack.enter_context(open_nvml()) if uuids else None
        except NvmlError as fault:
            yield GpuReadings(fault=str(fault))
            return
        if nvml is None:
            yield GpuReadings()
            return
        sampler = _Sampler(nvml, uuids, epoch_ns, interval_s)
        sampler.start()
        try:
            yield sampler.found
        finally:
            sampler.stop()


class _Sampler:
    def __init__(self, nvml: Nvml, uuids: Sequence[str], epoch_ns: int, interval_s: float) -> None:
        self.found = GpuReadings()
        self._nvml = nvml
        self._uuids = uuids
        self._epoch_ns = epoch_ns
        self._interval_s = interval_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read once more and end."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        due_s = time.monotonic()
        try:
            while not self._ending.is_set():
                self._read()
                due_s = max(due_s + self._interval_s, time.monotonic())
                self._ending.wait(due_s - time.monotonic())
            self._read()
        except NvmlError as fault:
            self.found.fault = str(fault)

    def _read(self) -> None:
        for uuid in self._uuids:
            reading = self._nvml.reading(uuid)
            self.found.readings.append((max(0, time.monotonic_ns() - self._epoch_ns), uuid, reading))


def gpu_samples(found: GpuReadings, dilation: float) -> list[GpuSample]:
    """Return readings as rows, in the experiment's time."""
    return [
        GpuSample(
            time_ns=undilated_ns(time_ns, dilation),
            device=uuid,
            utilization=reading.utilization,
            memory_used_bytes=reading.memory_used_bytes,
            power_w=reading.power_w,
            sm_clock_hz=reading.sm_clock_hz,
            memory_clock_hz=reading.memory_clock_hz,
            temperature_c=reading.temperature_c,
            throttled=", ".join(reading.throttled),
        )
        for time_ns, uuid, reading in found.readings
    ]
