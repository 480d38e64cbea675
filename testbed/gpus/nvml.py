"""Call NVIDIA's management library, NVML. No other module of the package does.

Its Python binding (package nvidia-ml-py, module ``pynvml``) is an extra of this package, ``wanbed[gpu]``; the library
itself comes with NVIDIA's driver. This module needs no CUDA and creates no CUDA context.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

BINDING_INSTALL = "pip install 'wanbed[gpu]'"
"""The command that installs the binding."""

Value = TypeVar("Value")


class NvmlError(Exception):
    """NVML does not answer; the message gives the reason in a few words."""


@dataclass(frozen=True)
class NvmlDevice:
    """A GPU, or a MIG instance of one. Its ``uuid`` never changes.

    ``parent`` is the UUID of the GPU that a MIG instance is part of. ``fault`` is why it cannot be used, None if it
    can. A field is None if the GPU does not report it.
    """

    uuid: str | None
    model: str
    memory_bytes: int | None
    parent: str | None = None
    fault: str | None = None


@dataclass(frozen=True)
class NvmlReading:
    """The state of a GPU at one moment; a field is None if the GPU does not report it.

    ``utilization`` is the fraction of NVML's last sampling period (1/6 to 1 s) in which any kernel ran. ``throttled``
    lists the reasons, after NVML's names, for which clocks were below the requested ones.
    """

    utilization: float | None
    memory_used_bytes: int | None
    memory_free_bytes: int | None
    power_w: float | None
    sm_clock_hz: int | None
    memory_clock_hz: int | None
    temperature_c: int | None
    throttled: tuple[str, ...]


_THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal limit",
    0x40: "hardware thermal limit",
    0x80: "hardware power brake",
}
"""The nvmlClocksEventReasons that slow work down; an idle GPU and clocks set by the user are not among them."""


class Nvml:
    """An open session; see ``open_nvml``."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        self._handles: dict[str, Any] = {}

    def driver_version(self) -> str:
        """Return the driver's version. Raise NvmlError on failure."""
        return str(self._required(self._binding.nvmlSystemGetDriverVersion))

    def devices(self) -> tuple[NvmlDevice, ...]:
        """Return every GPU, by bus address, with its fault if it has one; instead of a GPU in MIG mode, its instances.

        Raise NvmlError if the GPUs cannot be counted.
        """
        count = self._required(self._binding.nvmlDeviceGetCount)
        return tuple(device for index in range(count) for device in self._devices_at(index))

    def reading(self, uuid: str) -> NvmlReading:
        """Read the state of the GPU with that UUID. Raise NvmlError if there is none."""
        binding = self._binding
        handle = self._handles.get(uuid)
        if handle is None:
            handle = self._handles[uuid] = self._required(lambda: binding.nvmlDeviceGetHandleByUUID(uuid))

        def clock_hz(domain: int) -> int | None:
            return _scaled(self._optional(lambda: binding.nvmlDeviceGetClockInfo(handle, domain)), 1_000_000)

        memory = self._optional(lambda: binding.nvmlDeviceGetMemoryInfo(handle))
        rates = self._optional(lambda: binding.nvmlDeviceGetUtilizationRates(handle))
        power_mw = self._optional(lambda: binding.nvmlDeviceGetPowerUsage(handle))
        reasons = self._optional(lambda: binding.nvmlDeviceGetCurrentClocksEventReasons(handle)) or 0
        return NvmlReading(
            utilization=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_free_bytes=None if memory is None else int(memory.free),
            power_w=None if power_mw is None else power_mw / 1000,
            sm_clock_hz=clock_hz(binding.NVML_CLOCK_SM),
            memory_clock_hz=clock_hz(binding.NVML_CLOCK_MEM),
            temperature_c=self._optional(
                lambda: binding.nvmlDeviceGetTemperature(handle, binding.NVML_TEMPERATURE_GPU)
            ),
            throttled=tuple(name for bit, name in _THROTTLE_REASONS.items() if reasons & bit),
        )

    def _devices_at(self, index: int) -> tuple[NvmlDevice, ...]:
        """Return what the GPU at ``index`` offers. A fault of one GPU must not hide the others."""
        binding = self._binding
        try:
            handle = self._required(lambda: binding.nvmlDeviceGetHandleByIndex(index))
            gpu = self._device(handle)
        except NvmlError as fault:
            return (NvmlDevice(None, f"GPU {index}", None, fault=str(fault)),)
        mode = self._optional(lambda: binding.nvmlDeviceGetMigMode(handle))
        if mode is None or mode[0] != binding.NVML_DEVICE_MIG_ENABLE:
            return (gpu,)
        instances = tuple(self._instances(handle, gpu.uuid))
        return instances or (
            replace(gpu, fault="it is in MIG mode and has no instance: nvidia-smi mig -cgi PROFILE -C"),
        )

    def _instances(self, handle: Any, parent: str | None) -> Iterator[NvmlDevice]:
        """Yield the MIG instances of a GPU. CUDA does not offer the GPU itself while it has any."""
        binding = self._binding
        for place in range(self._optional(lambda: binding.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
            instance = self._optional(partial(binding.nvmlDeviceGetMigDeviceHandleByIndex, handle, place))
            if instance is None:
                # The places of the largest possible number of instances; most are empty.
                continue
            try:
                yield replace(self._device(instance), parent=parent)
            except NvmlError as fault:
                yield NvmlDevice(None, f"MIG instance {place}", None, parent, str(fault))

    def _device(self, handle: Any) -> NvmlDevice:
        binding = self._binding
        uuid = str(self._required(lambda: binding.nvmlDeviceGetUUID(handle)))
        self._handles[uuid] = handle
        memory = self._optional(lambda: binding.nvmlDeviceGetMemoryInfo(handle))
        return NvmlDevice(
            uuid,
            str(self._required(lambda: binding.nvmlDeviceGetName(handle))),
            None if memory is None else int(memory.total),
        )

    def _required(self, query: Callable[[], Value]) -> Value:
        try:
            return query()
        except self._binding.NVMLError as fault:
            raise NvmlError(f"NVML: {fault}") from None

    def _optional(self, query: Callable[[], Value]) -> Value | None:
        try:
            return query()
        except self._binding.NVMLError:
            return None


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """Open a session for the duration of the block. Raise NvmlError if the binding, library or driver is missing."""
    try:
        binding = import_module("pynvml")
    except ModuleNotFoundError:
        raise NvmlError(f"nvidia-ml-py is not installed: {BINDING_INSTALL}") from None
    try:
        binding.nvmlInit()
    except binding.NVMLError as fault:
        raise NvmlError(f"NVML: {fault}") from None
    try:
        yield Nvml(binding)
    finally:
        binding.nvmlShutdown()


def _scaled(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor
