"""Read the state of the profiled device: name, free memory, clocks and temperature, also while it is measured."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.runs.environment import cpu_model
from wanbed.testbed.gpus.gpu_assignment import VISIBLE_DEVICES
from wanbed.testbed.gpus.gpus import Gpu, machine_gpus, visible_gpus
from wanbed.testbed.gpus.nvml import Nvml, NvmlError, open_nvml
from wanbed.workloads.compute.device_settings import DEVICES
from wanbed.workloads.profiles.compute_profile import DeviceState

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_GROUP_MEMORY = Path("/sys/fs/cgroup")
_THERMAL = Path("/sys/class/thermal")


class DeviceAtHand(ABC):
    """A CPU or GPU. ``kind`` is its device type in torch, ``driver`` the version of a GPU's driver.

    ``state_interval_s`` is how often ``state`` may be called beside a measurement without slowing it.
    """

    kind: str
    name: str
    driver: str | None
    state_interval_s: float

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the free memory in bytes."""

    @abstractmethod
    def state(self) -> DeviceState:
        """Return the current clocks and temperature."""


class CpuAtHand(DeviceAtHand):
    """The cores that this process may use."""

    kind, driver = "cpu", None
    # The kernel asks every core for its clock.
    state_interval_s = 0.5

    def __init__(self) -> None:
        self.name = cpu_model(_CPUINFO.read_text(errors="replace")) or os.uname().machine

    def free_bytes(self) -> int:
        """Return the kernel's MemAvailable, or the rest of the process's control group limit if that is less."""
        return min([available_bytes(_MEMINFO.read_text()), *group_left_bytes(_GROUP_MEMORY)])

    def state(self) -> DeviceState:
        """Return the clock of the fastest core, and the temperature of the hottest thermal zone of a processor."""
        return DeviceState(
            clock_hz=_cpu_clock_hz(_CPUINFO.read_text(errors="replace")),
            memory_clock_hz=None,
            temperature_c=_cpu_temperature_c(_THERMAL),
            power_w=None,
        )


class GpuAtHand(DeviceAtHand):
    """A GPU, read through NVML."""

    kind = "cuda"
    state_interval_s = 0.1

    def __init__(self, gpu: Gpu, nvml: Nvml) -> None:
        assert gpu.uuid is not None
        self.name, self.driver = gpu.model, gpu.driver
        self._uuid, self._nvml = gpu.uuid, nvml

    def free_bytes(self) -> int:
        """Return the free GPU memory in bytes, 0 if the GPU does not report it."""
        return self._nvml.reading(self._uuid).memory_free_bytes or 0

    def state(self) -> DeviceState:
        """Return the clocks of the multiprocessors and the memory, the temperature and the power."""
        reading = self._nvml.reading(self._uuid)
        return DeviceState(
            clock_hz=reading.sm_clock_hz,
            memory_clock_hz=reading.memory_clock_hz,
            temperature_c=reading.temperature_c,
            power_w=reading.power_w,
            throttled=reading.throttled,
        )


@contextmanager
def device_at_hand(requested: str) -> Iterator[DeviceAtHand]:
    """Yield the device of that name (auto, cpu or cuda). Of several GPUs, it is the first that CUDA would see.

    The device is valid inside the block. Raise InputError for an unknown name. Raise MissingError if cuda is requested
    and there is no GPU, or if NVML cannot report a GPU's clocks.
    """
    if requested not in DEVICES:
        raise InputError(f"--device: {requested!r} is none of {', '.join(DEVICES)}")
    gpus = () if requested == "cpu" else visible_gpus(machine_gpus(), os.environ.get(VISIBLE_DEVICES))
    if not gpus:
        if requested == "cuda":
            raise MissingError("--device cuda: this machine offers no NVIDIA GPU: bring one, or give --device cpu")
        yield CpuAtHand()
        return
    try:
        with open_nvml() as nvml:
            yield GpuAtHand(gpus[0], nvml)
    except NvmlError as fault:
        raise MissingError(f"a GPU is profiled together with its clocks and temperature: {fault}") from None


def available_bytes(meminfo: str) -> int:
    """Return MemAvailable in bytes from the text of ``/proc/meminfo``, 0 if it is not there."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def group_left_bytes(group: Path) -> list[int]:
    """Return the bytes left below the memory limit of the control group mounted at ``group``; [] without a limit."""
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return [max(0, int(limit) - int(used))]
    except (OSError, ValueError):
        return []


def _cpu_clock_hz(cpuinfo: str) -> int | None:
    clocks = [float(text) for text in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)$", cpuinfo, re.MULTILINE)]
    return round(max(clocks) * 1e6) if clocks else None


def _cpu_temperature_c(thermal: Path) -> int | None:
    temperatures = []
    for zone in thermal.glob("thermal_zone*"):
        try:
            kind, millidegrees = ((zone / name).read_text().strip() for name in ("type", "temp"))
        except OSError:
            continue
        if re.search("cpu|pkg|core", kind, re.IGNORECASE):
            temperatures.append(int(millidegrees) // 1000)
    return max(temperatures, default=None)


class ClockSampler:
    """Samples ``state`` every ``interval_s``, from the beginning of each ``sampling`` block to its end.

    At least one sample is taken in each block. ``state`` is called from another thread. An error that it raises ends
    the block with that error.
    """

    def __init__(self, state: Callable[[], DeviceState], interval_s: float) -> None:
        self._state = state
        self._interval_s = interval_s
        self._samples: list[DeviceState] = []

    def take(self) -> list[DeviceState]:
        """Return all samples since the last call."""
        samples, self._samples = self._samples, []
        return samples

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample inside the block."""
        ended = Event()
        faults: list[Exception] = []

        def sample() -> None:
            try:
                self._samples.append(self._state())
                while not ended.wait(self._interval_s):
                    self._samples.append(self._state())
            except Exception as fault:
                faults.append(fault)

        thread = Thread(target=sample, name="clocks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if faults:
            raise faults[0]
