"""NVML's binding as a machine with these GPUs would give it."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

T = TypeVar("T")


class FakeNvmlError(Exception):
    pass


@dataclass
class FakeGpu:
    uuid: str
    name: str = "NVIDIA H200"
    total: int = 141 * 2**30
    used: int = 2**30
    refuses: set[str] = field(default_factory=set)
    reasons: int = 0
    instances: "list[FakeGpu | None] | None" = None


class FakePynvml:
    """As much of the module ``pynvml`` as is called; ``refuses`` of a GPU names the questions it does not answer.

    A GPU with ``instances`` is in MIG mode; a None among them is an empty place.
    """

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self, gpus: list[FakeGpu], fault: str = "") -> None:
        self.gpus = gpus
        self.fault = fault
        self.sessions = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fault:
            raise FakeNvmlError(self.fault)
        self.sessions += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "570.1"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        if "permission" in self.gpus[index].refuses:
            raise FakeNvmlError("Insufficient Permissions")
        return self.gpus[index]

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:  # noqa: N802
        mode = int(gpu.instances is not None)
        return self._told(gpu, "MIG", [mode, mode])

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:  # noqa: N802
        return len(gpu.instances or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, place: int) -> FakeGpu:  # noqa: N802
        instance = (gpu.instances or [])[place]
        if instance is None:
            raise FakeNvmlError("Not Found")
        return instance

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        instances = [each for gpu in self.gpus for each in gpu.instances or () if each is not None]
        for gpu in (*self.gpus, *instances):
            if "lost" in gpu.refuses:
                continue
            if gpu.uuid == uuid:
                return gpu
        raise FakeNvmlError("Not Found")

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802
        return self._told(gpu, "uuid", gpu.uuid)

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # noqa: N802
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return self._told(gpu, "memory", SimpleNamespace(total=gpu.total, used=gpu.used, free=gpu.total - gpu.used))

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return self._told(gpu, "utilization", SimpleNamespace(gpu=37, memory=5))

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:  # noqa: N802
        return self._told(gpu, "power", 412_500)

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, domain: int) -> int:  # noqa: N802
        return self._told(gpu, "clocks", {1: 1980, 2: 3201}[domain])

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:  # noqa: N802
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._told(gpu, "temperature", 54)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:  # noqa: N802
        return self._told(gpu, "reasons", gpu.reasons)

    @staticmethod
    def _told(gpu: FakeGpu, what: str, value: T) -> T:
        if what in gpu.refuses:
            raise FakeNvmlError("Not Supported")
        return value
