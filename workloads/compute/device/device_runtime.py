"""Streams, events and pinned memory of the GPU that this process was assigned. All CUDA calls for them are here.

Work goes to the compute stream, which is the thread's current stream, or to a copy stream. Work on one stream is done
in the order in which it was enqueued. Only events order the work of two streams.
"""

import mmap
import os
import weakref
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

_GPU, _MIG = "GPU-", "MIG-"


def assigned_uuid(seen: str, visible_devices: str | None) -> str:
    """Return the UUID of torch's first GPU as telemetry knows it. ``seen`` is what torch reports.

    ``visible_devices`` is the value of CUDA_VISIBLE_DEVICES. If it begins with a UUID, torch must see that GPU. If
    it does not, it was loaded before the variable was set, and telemetry would sample another GPU: raise ValueError.
    A MIG instance is returned by its own UUID, where torch may report that of the whole GPU.
    """
    # NVML and CUDA_VISIBLE_DEVICES write the UUID with this prefix.
    uuid = f"{_GPU}{seen.removeprefix(_GPU).removeprefix(_MIG)}"
    first = (visible_devices or "").partition(",")[0].strip()
    if first.startswith(_MIG):
        return first
    if first.startswith(_GPU) and not uuid.startswith(first):
        raise ValueError(
            f"device: torch computes on {uuid}, where CUDA_VISIBLE_DEVICES gives {first}: set it before torch is loaded"
        )
    return uuid


class DeviceEvent(ABC):
    """A mark in a stream. It is passed when all work enqueued before it is done. It can be recorded again."""

    @abstractmethod
    def wait(self) -> None:
        """Sleep, in this thread (and no other), until the event has passed."""

    def spin(self) -> None:
        """Wait with the least delay. Occupies a core."""
        while not self.passed():
            pass

    @abstractmethod
    def passed(self) -> bool:
        """Return whether ``wait`` would return at once."""

    @abstractmethod
    def since_ns(self, earlier: "DeviceEvent") -> float:
        """Return the nanoseconds on the device's clock from ``earlier`` to this event. Both must have passed.

        CUDA returns milliseconds in single precision: the resolution is half a microsecond at best, and 2^-24 of the
        value.
        """


class DeviceStream(ABC):
    """A stream of a device: the compute stream, or one for copies beside it."""

    @abstractmethod
    def record(self, event: DeviceEvent) -> None:
        """Enqueue the event."""

    @abstractmethod
    def wait_for(self, event: DeviceEvent) -> None:
        """Make work that is enqueued from now on wait for ``event``, which has been recorded. Block no thread."""

    @abstractmethod
    def copy(self, target: Tensor, source: Tensor) -> None:
        """Enqueue a copy between device and pinned memory. Both tensors are contiguous; keep them until it is done.

        From or to memory that is not pinned, this blocks the thread instead.
        """


class DeviceRuntime(ABC):
    """One GPU; ``device`` is its UUID, ``model`` its name."""

    device: str
    model: str

    @abstractmethod
    def compute_stream(self) -> DeviceStream:
        """Return the stream that runs this thread's kernels."""

    @abstractmethod
    def new_stream(self) -> DeviceStream:
        """Return a new stream, independent of all others."""

    @abstractmethod
    def use(self, stream: DeviceStream) -> AbstractContextManager[object]:
        """Return a context in which ``stream`` is this thread's compute stream."""

    @abstractmethod
    def event(self) -> DeviceEvent:
        """Return a new event that has not been recorded."""

    @abstractmethod
    def pinned(self, size_bytes: int) -> Tensor:
        """Return bytes in page-locked host memory, which the device can copy from and to asynchronously.

        This takes milliseconds and may block the device: keep the memory, and use it again.
        """

    @abstractmethod
    def scratch(self, size_bytes: int) -> Tensor:
        """Return page-locked bytes for one copy, from a cache that they return to when they are freed."""

    @abstractmethod
    def empty(self, elements: int, dtype: torch.dtype, *, filled_on: DeviceStream, used_on: DeviceStream) -> Tensor:
        """Return a flat tensor on the device, to be filled on one stream and used on another or the same.

        Earlier work of ``filled_on`` may still use its memory, that of ``used_on`` does not. Any thread may call this.
        """


class _CudaEvent(DeviceEvent):
    def __init__(self) -> None:
        # By default a thread that waits for an event occupies a core.
        self.event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self.event.synchronize()

    def passed(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def since_ns(self, earlier: DeviceEvent) -> float:
        assert isinstance(earlier, _CudaEvent)
        return float(earlier.event.elapsed_time(self.event)) * 1e6


class _CudaStream(DeviceStream):
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream

    def record(self, event: DeviceEvent) -> None:
        assert isinstance(event, _CudaEvent)
        event.event.record(self.stream)

    def wait_for(self, event: DeviceEvent) -> None:
        assert isinstance(event, _CudaEvent)
        self.stream.wait_event(event.event)

    def copy(self, target: Tensor, source: Tensor) -> None:
        with torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)


class CudaRuntime(DeviceRuntime):
    """A GPU, used through torch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        properties = torch.cuda.get_device_properties(device)
        self.device = assigned_uuid(str(properties.uuid), os.environ.get("CUDA_VISIBLE_DEVICES"))
        self.model = str(properties.name)

    def compute_stream(self) -> DeviceStream:
        """Return the stream that torch calls current."""
        return _CudaStream(torch.cuda.current_stream(self._device))

    def new_stream(self) -> DeviceStream:
        """Return a stream of torch's pool."""
        return _CudaStream(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]

    def use(self, stream: DeviceStream) -> AbstractContextManager[object]:
        """Return a context in which torch calls the stream current."""
        assert isinstance(stream, _CudaStream)
        return torch.cuda.stream(stream.stream)

    def event(self) -> DeviceEvent:
        """Return an event that records the time."""
        return _CudaEvent()

    def pinned(self, size_bytes: int) -> Tensor:
        """Return page-locked memory of exactly that size. torch's own allocator would round up to a power of two."""
        pages = np.frombuffer(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8)
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        torch.cuda.check_error(cudart.cudaHostRegister(pages.ctypes.data, size_bytes, 0))
        # Called before the pages are unmapped. At exit the process may have left CUDA already.
        weakref.finalize(pages, cudart.cudaHostUnregister, pages.ctypes.data).atexit = False
        return torch.from_numpy(pages)

    def scratch(self, size_bytes: int) -> Tensor:
        """Return page-locked memory of torch's allocator, which rounds up to a power of two."""
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def empty(self, elements: int, dtype: torch.dtype, *, filled_on: DeviceStream, used_on: DeviceStream) -> Tensor:
        """Return memory of torch's allocator, which reuses memory in the order of ``filled_on``."""
        assert isinstance(used_on, _CudaStream)
        with self.use(filled_on):
            tensor = torch.empty(elements, dtype=dtype, device=self._device)
        tensor.record_stream(used_on.stream)
        return tensor
