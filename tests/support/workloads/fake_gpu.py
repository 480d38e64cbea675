"""A GPU that is played by the CPU: streams that do nothing until somebody waits, and a clock of its own.

Whoever reads what no event has been waited for reads what was there before, which is NaN; and whoever copies without
waiting for what computes fails: so forgotten waits show.
"""

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime, DeviceStream
from workloads.compute.device.torch_device import CpuDevice

NAN_BYTES = 0xFF


class FakeEvent(DeviceEvent):
    """``time_ns`` is on the GPU's clock, None while the mark has not been passed."""

    def __init__(self) -> None:
        self.stream: FakeStream | None = None
        self.time_ns: float | None = None

    def wait(self) -> None:
        if self.stream is not None:
            self.stream.run_until(self)
        assert self.time_ns is not None, "waited for an event that has not been recorded"

    def passed(self) -> bool:
        return self.time_ns is not None

    def since_ns(self, earlier: DeviceEvent) -> float:
        assert isinstance(earlier, FakeEvent)
        assert self.time_ns is not None
        assert earlier.time_ns is not None
        return self.time_ns - earlier.time_ns


class FakeStream(DeviceStream):
    """Does what is enqueued when it is waited for; ``eager`` as soon as it is enqueued, like the CPU's computation."""

    def __init__(self, gpu: "FakeGpu", *, eager: bool = False) -> None:
        self._gpu = gpu
        self._eager = eager
        self._queue: deque[Callable[[], None]] = deque()
        self._after_compute = False

    def record(self, event: DeviceEvent) -> None:
        assert isinstance(event, FakeEvent)
        event.stream, event.time_ns = self, None

        def pass_mark() -> None:
            event.time_ns = self._gpu.clock_ns()

        self._do(pass_mark)

    def wait_for(self, event: DeviceEvent) -> None:
        assert isinstance(event, FakeEvent)
        self._after_compute |= event.stream is self._gpu.compute_stream()
        self._do(event.wait)

    def copy(self, target: Tensor, source: Tensor) -> None:
        assert self._after_compute, "what is copied may yet have to be computed, or its target be read"
        self._after_compute = False

        def copy() -> None:
            target.copy_(source)
            self._gpu.copied_bytes.append(source.nbytes)
            self._gpu.spend_ns(1_000 + source.nbytes)

        self._do(copy)

    def run_until(self, event: FakeEvent) -> None:
        while event.time_ns is None and self._queue:
            self._queue.popleft()()

    def _do(self, work: Callable[[], None]) -> None:
        if self._eager:
            work()
        else:
            self._queue.append(work)


class FakeGpu(DeviceRuntime):
    """``copied_bytes`` are the sizes of all copies; ``speed`` is that of its clock, which is far from the host's."""

    model = "a CPU that plays a GPU"

    def __init__(self, speed: float = 1.0, device: str = "GPU-fake") -> None:
        self.device = device
        self.copied_bytes: list[int] = []
        self.pinned_buffers = 0
        self.now_ns = 5_000_000_000
        self._speed = speed
        self._compute = FakeStream(self, eager=True)

    def clock_ns(self) -> float:
        """The GPU's own clock."""
        return (self.now_ns - 4_000_000_000) * self._speed

    def host_clock_ns(self) -> int:
        """The host's; every look takes 100 ns."""
        self.spend_ns(100)
        return self.now_ns

    def spend_ns(self, duration_ns: int) -> None:
        self.now_ns += duration_ns

    def compute_stream(self) -> FakeStream:
        return self._compute

    def copy_stream(self) -> FakeStream:
        return FakeStream(self)

    def event(self) -> FakeEvent:
        return FakeEvent()

    def pinned(self, size_bytes: int) -> Tensor:
        self.pinned_buffers += 1
        return torch.full((size_bytes,), NAN_BYTES, dtype=torch.uint8)

    def empty(self, elements: int, dtype: torch.dtype) -> Tensor:
        return torch.full((elements * dtype.itemsize,), NAN_BYTES, dtype=torch.uint8).view(dtype)


class FakeGpuDevice(CpuDevice):
    """A device whose streams, events and pinned memory are those of a ``FakeGpu``."""

    def __init__(self, gpu: FakeGpu | None = None) -> None:
        self.runtime = gpu or FakeGpu()
