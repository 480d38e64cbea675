"""Read several GPUs of this machine, and go on without those that cannot be read."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from wanbed.testbed.gpus.gpus import machine_gpus
from wanbed.testbed.gpus.nvml import Nvml, NvmlError, NvmlReading, open_nvml

GpuReadings = list[tuple[str, NvmlReading]]
"""The UUID of each GPU and its NVML reading."""


class ReadsGpus(Protocol):
    """A reader of GPUs, of this machine or of several, until ``close``."""

    @property
    def faults(self) -> Sequence[str]:
        """The reasons why some GPUs are not read any more."""

    def read(self) -> GpuReadings:
        """Read every GPU that has answered so far."""

    def close(self) -> None:
        """End reading."""


class GpuReader:
    """Read the GPUs with these UUIDs, until ``close``. ``faults`` are why some of them are not read any more."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = [*uuids]
        self._ending = ExitStack()
        self._nvml: Nvml | None = None
        self.faults: list[str] = []
        try:
            self._nvml = self._ending.enter_context(open_nvml())
        except NvmlError as fault:
            self.faults.append(str(fault))

    def read(self) -> GpuReadings:
        """Read every GPU that has answered so far."""
        found: GpuReadings = []
        if self._nvml is None:
            return found
        for uuid in [*self._uuids]:
            try:
                found.append((uuid, self._nvml.reading(uuid)))
            except NvmlError as fault:
                self._uuids.remove(uuid)
                self.faults.append(f"{uuid}: {fault}")
        return found

    def close(self) -> None:
        """End the session with NVML."""
        self._ending.close()


@dataclass(frozen=True)
class GpuMemory:
    """The memory of a GPU: all of it, and what no process uses now."""

    model: str
    total_bytes: int
    free_bytes: int


def gpu_memories(uuids: Sequence[str]) -> dict[str, GpuMemory]:
    """Return the memory of those of these GPUs that report it; of none without NVML."""
    models = {gpu.uuid: gpu for gpu in machine_gpus()}
    memories = {}
    try:
        with open_nvml() as nvml:
            for uuid in uuids:
                gpu, free_bytes = models[uuid], nvml.reading(uuid).memory_free_bytes
                if gpu.memory_bytes is not None and free_bytes is not None:
                    memories[uuid] = GpuMemory(gpu.model, gpu.memory_bytes, free_bytes)
    except NvmlError:
        # Without NVML nothing is known of any GPU's memory.
        return {}
    return memories
