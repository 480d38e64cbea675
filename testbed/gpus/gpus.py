"""List the NVIDIA GPUs of this machine, from NVML or from the driver's files."""

import re
from dataclasses import dataclass
from pathlib import Path

from testbed.gpus.nvml import NvmlError, open_nvml

NVIDIA_DRIVER = Path("/proc/driver/nvidia")


@dataclass(frozen=True)
class Gpu:
    """One GPU; a field is None if the machine does not report it.

    ``driver`` is the driver's version, ``uuid`` the GPU's name in CUDA_VISIBLE_DEVICES.
    """

    model: str
    driver: str | None
    uuid: str | None = None
    memory_bytes: int | None = None


def machine_gpus(driver: Path = NVIDIA_DRIVER) -> tuple[Gpu, ...]:
    """Return every GPU that this process may use, as NVML lists them; without NVML, as the driver's files list them."""
    try:
        with open_nvml() as nvml:
            driver_version = nvml.driver_version()
            return tuple(
                Gpu(device.model, driver_version, device.uuid, device.memory_bytes) for device in nvml.devices()
            )
    except NvmlError:
        return nvidia_gpus(driver)


def nvidia_gpus(driver: Path = NVIDIA_DRIVER) -> tuple[Gpu, ...]:
    """Return every GPU of the machine from the driver's files, by bus address; none if there is no driver."""
    gpus = []
    for information in sorted(driver.glob("gpus/*/information")):
        lines = dict(line.partition(":")[::2] for line in information.read_text().splitlines())
        model, uuid = (lines.get(name, "").strip() or None for name in ("Model", "GPU UUID"))
        gpus.append(Gpu(model or "unknown", _version(driver / "version"), uuid))
    return tuple(gpus)


def visible_gpus(gpus: tuple[Gpu, ...], visible_devices: str | None) -> tuple[Gpu, ...]:
    """Return the ``gpus`` that are visible under this value of CUDA_VISIBLE_DEVICES, in its order; all if it is None.

    As in CUDA, an entry is an index or an unambiguous beginning of a UUID; the first entry that is neither hides itself
    and all after it. Indices follow NVML's order, by bus address. CUDA uses the same order if CUDA_DEVICE_ORDER is
    PCI_BUS_ID or all GPUs are of one model.
    """
    if visible_devices is None:
        return gpus
    visible: list[Gpu] = []
    for entry in (text.strip() for text in visible_devices.split(",")):
        if entry.isascii() and entry.isdigit():
            found = gpus[int(entry) : int(entry) + 1]
        else:
            found = tuple(gpu for gpu in gpus if entry and gpu.uuid is not None and gpu.uuid.startswith(entry))
        if len(found) != 1:
            break
        visible.append(found[0])
    return tuple(visible)


def _version(file: Path) -> str | None:
    text = file.read_text() if file.is_file() else ""
    match = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return match.group(1) if match else None
