"""List the NVIDIA GPUs of this machine, from NVML or from the driver's files, read several, and find MPS.

A GPU that cannot be read any more leaves the others to be read. With CUDA's Multi-Process Service, MPS, kernels of
several processes run on one GPU at the same time, which they otherwise do in turns.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from wanbed.testbed.gpus.nvml import Nvml, NvmlError, NvmlReading, open_nvml

NVIDIA_DRIVER = Path("/proc/driver/nvidia")
DEVICES = Path("/dev")


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG instance of a GPU; a field is None if the machine does not report it.

    ``driver`` is the driver's version, ``uuid`` the GPU's name in CUDA_VISIBLE_DEVICES. ``parent`` is the UUID of the
    GPU that a MIG instance is part of. ``fault`` is why the GPU cannot be used, None if it can.
    """

    model: str
    driver: str | None
    uuid: str | None = None
    memory_bytes: int | None = None
    parent: str | None = None
    fault: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the GPU in plain JSON types, with ``parent`` and ``fault`` only where there is one."""
        return {
            name: value for name, value in asdict(self).items() if value is not None or name not in {"parent", "fault"}
        }


def machine_gpus(driver: Path = NVIDIA_DRIVER) -> tuple[Gpu, ...]:
    """Return every GPU, faulty ones included, as NVML lists them; without NVML, as the driver's files list them."""
    try:
        with open_nvml() as nvml:
            driver_version = nvml.driver_version()
            return tuple(
                Gpu(each.model, driver_version, each.uuid, each.memory_bytes, each.parent, each.fault)
                for each in nvml.devices()
            )
    except NvmlError:
        return nvidia_gpus(driver)


def nvidia_gpus(driver: Path = NVIDIA_DRIVER) -> tuple[Gpu, ...]:
    """Return every GPU of the machine from the driver's files, by bus address; none if there is no driver."""
    gpus = []
    for information in sorted(driver.glob("gpus/*/information")):
        lines = dict(line.partition(":")[::2] for line in information.read_text().splitlines())
        model, uuid = (lines.get(name, "").strip() or None for name in ("Model", "GPU UUID"))
        if uuid is not None and "?" in uuid:
            # The driver writes GPU-????????-... for a GPU that nothing has used since it was loaded.
            uuid = None
        gpus.append(Gpu(model or "unknown", _version(driver / "version"), uuid))
    return tuple(gpus)


def visible_gpus(gpus: tuple[Gpu, ...], visible_devices: str | None) -> tuple[Gpu, ...]:
    """Return the ``gpus`` without fault that are visible under this value of CUDA_VISIBLE_DEVICES, in its order.

    All are if it is None. As in CUDA, an entry is an index or an unambiguous beginning of a UUID; the first entry that
    is neither hides itself and all after it. Indices follow NVML's order, by bus address. CUDA uses the same order if
    CUDA_DEVICE_ORDER is PCI_BUS_ID or all GPUs are of one model. An entry for a GPU in MIG mode is its first instance.
    """
    sound = tuple(gpu for gpu in gpus if gpu.fault is None)
    if visible_devices is None:
        return sound
    physical: dict[str | int, Gpu] = {}
    for place, gpu in enumerate(sound):
        physical.setdefault(gpu.parent or place, gpu)
    firsts = tuple(physical.values())
    visible: list[Gpu] = []
    for entry in (text.strip() for text in visible_devices.split(",")):
        if entry.isascii() and entry.isdigit():
            found = firsts[int(entry) : int(entry) + 1]
        else:
            found = tuple(gpu for gpu in sound if entry and (gpu.uuid or "").startswith(entry))
            found = found or tuple(gpu for gpu in firsts if entry and (gpu.parent or "").startswith(entry))
        if len(found) != 1:
            break
        visible.append(found[0])
    return tuple(visible)


def device_files(devices: Path = DEVICES) -> tuple[str, ...]:
    """Return the driver's device files of GPUs: more than none on a machine whose GPUs cannot be listed."""
    return tuple(str(path) for path in sorted(devices.glob("nvidia[0-9]*")))


def _version(file: Path) -> str | None:
    text = file.read_text() if file.is_file() else ""
    match = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return match.group(1) if match else None


_PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
_THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_DEFAULT_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA itself looks
_CONTROL_PROGRAM = "nvidia-cuda-mps-control"
_COMM_CHARACTERS = 15


@dataclass(frozen=True)
class Mps:
    """MPS as processes of this machine find it.

    ``pipe_directory`` is where they connect. ``active_thread_percentage`` is the share of a GPU's multiprocessors that
    each may use, as its variable says, None for no limit.
    """

    pipe_directory: str
    active_thread_percentage: str | None


def find_mps(environment: Mapping[str, str] = os.environ, processes: Path = Path("/proc")) -> Mps | None:
    """Return MPS if its daemon runs and CUDA programs with this environment would use it, else None.

    They do if the daemon's pipe is in the directory that they look in. A pipe alone may be left from a daemon that has
    ended.
    """
    directory = environment.get(_PIPE_DIRECTORY) or _DEFAULT_DIRECTORY
    if not (Path(directory) / "control").exists() or not _runs(processes):
        return None
    return Mps(directory, environment.get(_THREAD_PERCENTAGE))


def _runs(processes: Path) -> bool:
    for comm in processes.glob("[0-9]*/comm"):
        try:
            name = comm.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        if name == _CONTROL_PROGRAM[:_COMM_CHARACTERS]:
            return True
    return False


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
