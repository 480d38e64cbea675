"""List the NVIDIA GPUs of this machine, from NVML or from the driver's files."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wanbed.testbed.gpus.nvml import NvmlError, open_nvml

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
