"""Streams, events and pinned memory of a GPU. Every call of CUDA for them is here.

Work goes to the compute stream, which is the thread's current one, or to a stream for copies. What is enqueued on one
stream is done in its order; only events order work of two streams.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class DeviceEvent(ABC):
    """A mark in a stream, passed when everything enqueued there before has been done; it can be recorded again."""

    @abstractmethod
    def wait(self) -> None:
        """Block this thread, and no other, until the mark has been passed."""

    @abstractmethod
    def passed(self) -> bool:
        """Return whether ``wait`` would return at once."""

    @abstractmethod
    def since_ns(self, earlier: "DeviceEvent") -> float:
        """Return the time on the device's clock from ``earlier`` to this event. Both must have been passed.

        CUDA gives a single-precision number of milliseconds: half a microsecond at best, and 2^-24 of its own size.
        """


class DeviceStream(ABC):
    """A queue of copies on a device, beside the one in which it computes."""

    @abstractmethod
    def record(self, event: DeviceEvent) -> None:
        """Enqueue the event's mark."""

    @abstractmethod
    def wait_for(self, event: DeviceEvent) -> None:
        """Let what is enqueued from now on wait for ``event``, which was recorded before. Blocks no thread."""

    @abstractmethod
    def copy(self, target: Tensor, source: Tensor) -> None:
        """Enqueue a copy between the device and pinned memory, both contiguous; both must stay until it is done."""


class DeviceRuntime(ABC):
    """One GPU; ``device`` is its UUID, ``model`` its name."""

    device: str
    model: str

    @abstractmethod
    def compute_stream(self) -> DeviceStream:
        """Return the stream that this thread's kernels go to."""

    @abstractmethod
    def copy_stream(self) -> DeviceStream:
        """Return a new stream, beside all others."""

    @abstractmethod
    def event(self) -> DeviceEvent:
        """Return a new event that has not been recorded."""

    @abstractmethod
    def pinned(self, size_bytes: int) -> Tensor:
        """Return bytes in the CPU's memory that the device copies from and to by itself."""

    @abstractmethod
    def empty(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return a flat tensor on the device. Earlier work of the compute stream may still use its memory."""


class _CudaEvent(DeviceEvent):
    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self.event.synchronize()

    def passed(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def since_ns(self, earlier: DeviceEvent) -> float:
        assert isinstance(earlier, _CudaEvent)
        return float(earlier.event.elapsed_time(self.event)) * 1e6


class _CudaStream(DeviceStream):
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def record(self, event: DeviceEvent) -> None:
        assert isinstance(event, _CudaEvent)
        event.event.record(self._stream)

    def wait_for(self, event: DeviceEvent) -> None:
        assert isinstance(event, _CudaEvent)
        self._stream.wait_event(event.event)

    def copy(self, target: Tensor, source: Tensor) -> None:
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)


class CudaRuntime(DeviceRuntime):
    """A GPU, used through torch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        properties = torch.cuda.get_device_properties(device)
        # NVML and CUDA_VISIBLE_DEVICES write it with the prefix.
        self.device, self.model = f"GPU-{str(properties.uuid).removeprefix('GPU-')}", str(properties.name)

    def compute_stream(self) -> DeviceStream:
        """Return the stream that torch calls current."""
        return _CudaStream(torch.cuda.current_stream(self._device))

    def copy_stream(self) -> DeviceStream:
        """Return a stream of torch's pool."""
        return _CudaStream(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]

    def event(self) -> DeviceEvent:
        """Return an event that takes the time."""
        return _CudaEvent()

    def pinned(self, size_bytes: int) -> Tensor:
        """Return page-locked memory."""
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def empty(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return memory of torch's allocator, which hands it out in the compute stream's order."""
        return torch.empty(elements, dtype=dtype, device=self._device)
