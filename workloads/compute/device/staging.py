"""Staging: copy a stage's messages between the device and the host memory that sockets use.

On the CPU nothing is copied: the tensor's own memory is sent, and received payloads are used as tensors. A GPU copies
through pinned memory, which is made ahead and used again and again, with one stream for each direction, while kernels
and sockets continue.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime, DeviceStream
from wanbed.workloads.compute.device.torch_device import TorchDevice, as_bytes, as_tensor

_MOST_RESERVED_BYTES = 1 << 30


class PinnedBuffers:
    """Buffers by size, of any number of threads. ``take`` makes one only if none of its size is free.

    Making one takes milliseconds, during which the GPU may idle. So ``reserve`` makes them before they are needed.
    """

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._free: dict[int, list[Tensor]] = {}

    def reserve(self, size_bytes: int, count: int) -> None:
        """Make ``count`` free buffers of that size, but no more than fit into 1 GiB."""
        if size_bytes:
            made = [self._runtime.pinned(size_bytes) for _ in range(min(count, _MOST_RESERVED_BYTES // size_bytes))]
            self._free.setdefault(size_bytes, []).extend(made)

    def take(self, size_bytes: int) -> Tensor:
        """Return a flat tensor of that many bytes. It still has the contents of its last use."""
        try:
            return self._free.setdefault(size_bytes, []).pop()
        except IndexError:
            return self._runtime.pinned(size_bytes)

    def give_back(self, buffer: Tensor) -> None:
        """Take the buffer back. The caller must not use it again."""
        self._free.setdefault(buffer.nbytes, []).append(buffer)


Release = Callable[[memoryview], None]


@dataclass(frozen=True)
class Staged:
    """The total of the copies in one direction: bytes, and time on the device."""

    size_bytes: int = 0
    copy_ns: int = 0

    def plus(self, size_bytes: int, copy_ns: int) -> "Staged":
        """Return the total with one more copy."""
        return Staged(self.size_bytes + size_bytes, self.copy_ns + copy_ns)


class OutgoingCopy(ABC):
    """A tensor on its way to the host."""

    @abstractmethod
    def payload(self) -> memoryview:
        """Wait until the tensor's bytes are on the host, and return them, writable. Any one thread may call this."""

    @abstractmethod
    def release(self) -> None:
        """Release the payload after its last use."""


class IncomingCopy(ABC):
    """A tensor on its way to the device."""

    tensor: Tensor

    @abstractmethod
    def let_compute_wait(self) -> None:
        """Make kernels that are enqueued from now on wait for the tensor. Block no thread."""


class Staging(ABC):
    """The copies of one stage's messages in both directions.

    All calls come from the computing thread, except ``OutgoingCopy.payload``, ``incoming``, ``receive_buffer`` and
    ``settle``, which any thread may call.
    """

    overlaps: bool
    """True if a copy runs while the next action computes, so that another thread should wait for its payload."""

    keeps_payload: bool
    """True if the tensor of an incoming payload uses the payload's memory. Then the caller must release the payload."""

    to_host: Staged
    to_device: Staged

    @abstractmethod
    def outgoing(self, tensor: Tensor) -> OutgoingCopy:
        """Begin to copy a tensor whose computation is done or enqueued."""

    @abstractmethod
    def incoming(self, payload: memoryview, dtype: torch.dtype, release: Release) -> IncomingCopy:
        """Begin to copy a payload into a flat tensor. Call ``release`` after the copy, unless ``keeps_payload``."""

    @abstractmethod
    def take_back(self, tensor: Tensor, copy: OutgoingCopy) -> None:
        """Copy a payload that has changed since ``outgoing`` back to its tensor, and release it."""

    @abstractmethod
    def receive_buffer(self, size_bytes: int) -> memoryview | None:
        """Return memory to receive a payload in, None if any memory will do."""

    @abstractmethod
    def settle(self) -> None:
        """Release the memory of finished copies, and add them to ``to_host`` and ``to_device``."""


@dataclass(frozen=True, slots=True)
class _OutgoingTensor(OutgoingCopy):
    tensor: Tensor

    def payload(self) -> memoryview:
        return as_bytes(self.tensor)

    def release(self) -> None:
        """Do nothing: the tensor is freed with this object."""


@dataclass(frozen=True, slots=True)
class _IncomingTensor(IncomingCopy):
    tensor: Tensor

    def let_compute_wait(self) -> None:
        """Do nothing: the tensor is complete."""


class DirectStaging(Staging):
    """Staging without streams: on the CPU, tensors and payloads share their memory."""

    overlaps = False
    to_host = to_device = Staged()

    def __init__(self, device: TorchDevice) -> None:
        self._device = device
        self.keeps_payload = device.shares_memory

    def outgoing(self, tensor: Tensor) -> OutgoingCopy:
        """Return the tensor on the host. On the CPU that is the tensor itself if it is contiguous."""
        return _OutgoingTensor(self._device.on_host(tensor))

    def incoming(self, payload: memoryview, dtype: torch.dtype, release: Release) -> IncomingCopy:
        """Return the payload as a tensor on the device. On the CPU it uses the payload's own memory."""
        tensor = self._device.received(payload, dtype)
        if not self.keeps_payload:
            release(payload)
        return _IncomingTensor(tensor)

    def take_back(self, tensor: Tensor, copy: OutgoingCopy) -> None:
        """Copy the payload back. On the CPU do nothing, because tensor and payload are the same memory."""
        if not self.keeps_payload:
            tensor.copy_(as_tensor(copy.payload(), tensor.dtype).view(tensor.shape))

    def receive_buffer(self, size_bytes: int) -> memoryview | None:
        """Return None: any memory will do."""
        return None

    def settle(self) -> None:
        """Do nothing: no copy is in progress."""


class _PinnedOutgoing(OutgoingCopy):
    def __init__(self, buffer: Tensor, done: DeviceEvent, give_back: Callable[[Tensor], None]) -> None:
        self._buffer = buffer
        self._done = done
        self._give_back = give_back

    def payload(self) -> memoryview:
        self._done.wait()
        return as_bytes(self._buffer)

    def release(self) -> None:
        self._done.wait()
        self._give_back(self._buffer)


@dataclass(frozen=True, slots=True)
class _PinnedIncoming(IncomingCopy):
    tensor: Tensor
    done: DeviceEvent
    compute: DeviceStream

    def let_compute_wait(self) -> None:
        self.compute.wait_for(self.done)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A copy that may not be done yet, with the source to keep alive until then."""

    outward: bool
    before: DeviceEvent
    done: DeviceEvent
    source: Tensor
    release: Callable[[], None]


class PinnedStaging(Staging):
    """Staging for a GPU: copies on two separate streams, through pinned buffers that are reused.

    A copy to the host begins when the kernels enqueued so far have ended, and later kernels do not wait for it. A copy
    to the device begins at once, into memory that no kernel uses; kernels enqueued after ``let_compute_wait`` wait for
    it. Construct it in the computing thread. ``messages`` says how many buffers of each size of a message are made
    ahead, for both directions.
    """

    overlaps = True
    keeps_payload = False

    def __init__(self, runtime: DeviceRuntime, messages: Mapping[int, int] | None = None) -> None:
        self._runtime = runtime
        self._compute = runtime.compute_stream()
        self._outward, self._inward = runtime.new_stream(), runtime.new_stream()
        self._messages = dict(messages or {})
        self._buffers = PinnedBuffers(runtime)
        for message_bytes, count in self._messages.items():
            self._buffers.reserve(message_bytes, count)
        self._lock = Lock()
        self._under_way: list[_UnderWay] = []
        self.to_host = self.to_device = Staged()

    def outgoing(self, tensor: Tensor) -> OutgoingCopy:
        """Begin a copy to a pinned buffer."""
        source = tensor.detach().contiguous()
        buffer = self._buffers.take(source.nbytes)
        target = buffer.view(source.dtype).view(source.shape)
        self._wait_for_compute(self._outward)
        done = self._copy(self._outward, target, source)
        return _PinnedOutgoing(buffer, done, self._buffers.give_back)

    def incoming(self, payload: memoryview, dtype: torch.dtype, release: Release) -> IncomingCopy:
        """Begin a copy of ``payload``. It is asynchronous only if the payload is in a ``receive_buffer``."""
        source = as_tensor(payload, dtype)
        tensor = self._runtime.empty(source.numel(), dtype, filled_on=self._inward, used_on=self._compute)
        done = self._copy(self._inward, tensor, source, release=lambda: release(payload))
        return _PinnedIncoming(tensor, done, self._compute)

    def take_back(self, tensor: Tensor, copy: OutgoingCopy) -> None:
        """Copy the payload back, and wait for the copy."""
        source = as_tensor(copy.payload(), tensor.dtype).view(tensor.shape)
        self._wait_for_compute(self._inward)
        self._copy(self._inward, tensor, source).wait()
        copy.release()

    def receive_buffer(self, size_bytes: int) -> memoryview | None:
        """Return pinned memory for a message, None for any other size: only messages are copied to the device."""
        return as_bytes(self._buffers.take(size_bytes)) if size_bytes in self._messages else None

    def settle(self) -> None:
        """Release the copies that are done, and keep the others until the next call."""
        with self._lock:
            done: list[_UnderWay] = []
            under_way, self._under_way = self._under_way, []
            for copy in under_way:
                (done if copy.done.passed() else self._under_way).append(copy)
            for copy in done:
                moved = copy.source.nbytes, round(copy.done.since_ns(copy.before))
                if copy.outward:
                    self.to_host = self.to_host.plus(*moved)
                else:
                    self.to_device = self.to_device.plus(*moved)
        for copy in done:
            copy.release()

    def _wait_for_compute(self, stream: DeviceStream) -> None:
        computed = self._runtime.event()
        self._compute.record(computed)
        stream.wait_for(computed)

    def _copy(
        self, stream: DeviceStream, target: Tensor, source: Tensor, release: Callable[[], None] = lambda: None
    ) -> DeviceEvent:
        before, done = self._runtime.event(), self._runtime.event()
        with self._lock:
            stream.record(before)
            stream.copy(target, source)
            stream.record(done)
            self._under_way.append(_UnderWay(stream is self._outward, before, done, source, release))
        return done


def create_staging(device: TorchDevice, messages: Mapping[int, int]) -> Staging:
    """Return the staging for computation on ``device``, prepared for so many messages of each size at a time."""
    if device.runtime is None:
        return DirectStaging(device)
    return PinnedStaging(device.runtime, messages)
