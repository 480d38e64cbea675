"""Copy a stage's messages from the device to where sockets read them, and back.

On the CPU they are there already: the tensor itself is sent, and received payloads are computed from without a copy. A
GPU copies through pinned memory, each way on a stream of its own, beside its kernels and beside the sockets.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime, DeviceStream
from workloads.compute.device.torch_device import TorchDevice
from workloads.compute.tensor_bytes import as_bytes, as_tensor

Release = Callable[[memoryview], None]


@dataclass(frozen=True)
class Staged:
    """The total of copies one way so far: their bytes, and the time the device took for them."""

    size_bytes: int = 0
    copy_ns: int = 0

    def plus(self, size_bytes: int, copy_ns: int) -> "Staged":
        """Return the total with one copy more."""
        return Staged(self.size_bytes + size_bytes, self.copy_ns + copy_ns)


class OutgoingCopy(ABC):
    """A tensor on its way to the host."""

    @abstractmethod
    def payload(self) -> memoryview:
        """Return the tensor's bytes, writable, once they are on the host. Any one thread may call it; it waits."""

    @abstractmethod
    def release(self) -> None:
        """Release the payload, which nobody reads any more."""


class IncomingCopy(ABC):
    """A tensor on its way to the device."""

    tensor: Tensor

    @abstractmethod
    def let_compute_wait(self) -> None:
        """Let what is computed from now on wait for the tensor. Blocks no thread."""


class Staging(ABC):
    """Both ways of one stage's messages. The computing thread makes all calls but ``OutgoingCopy.payload``."""

    overlaps: bool
    """Whether a copy goes on beside what is computed next, so that somebody else should wait for its payload."""

    keeps_payload: bool
    """Whether the tensor of an incoming payload lives in its memory, which is then the caller's to release."""

    to_host: Staged
    to_device: Staged

    @abstractmethod
    def outgoing(self, tensor: Tensor) -> OutgoingCopy:
        """Begin to copy a tensor that has been computed, or that is enqueued to be computed."""

    @abstractmethod
    def incoming(self, payload: memoryview, dtype: torch.dtype, release: Release) -> IncomingCopy:
        """Begin to copy a payload's elements into a flat tensor; ``release`` follows, unless ``keeps_payload``."""

    @abstractmethod
    def take_back(self, tensor: Tensor, copy: OutgoingCopy) -> None:
        """Copy a payload, which has been changed since, back to the tensor that it came from, and release it."""

    @abstractmethod
    def receive_buffer(self, size_bytes: int) -> memoryview | None:
        """Return memory that a payload should arrive in, None where any will do."""

    @abstractmethod
    def settle(self) -> None:
        """Release what finished copies have held, and add those copies to ``to_host`` and ``to_device``."""


@dataclass(frozen=True, slots=True)
class _OutgoingTensor(OutgoingCopy):
    tensor: Tensor

    def payload(self) -> memoryview:
        return as_bytes(self.tensor)

    def release(self) -> None:
        """Do nothing: the tensor is freed with whoever holds this."""


@dataclass(frozen=True, slots=True)
class _IncomingTensor(IncomingCopy):
    tensor: Tensor

    def let_compute_wait(self) -> None:
        """Do nothing: the tensor is there."""


class DirectStaging(Staging):
    """A device that gives and takes tensors at once: the CPU, whose memory they share."""

    overlaps = False
    to_host = to_device = Staged()

    def __init__(self, device: TorchDevice) -> None:
        self._device = device
        self.keeps_payload = device.shares_memory

    def outgoing(self, tensor: Tensor) -> OutgoingCopy:
        """Return the tensor on the host; on the CPU that is the tensor itself, if its elements lie in order."""
        return _OutgoingTensor(self._device.on_host(tensor))

    def incoming(self, payload: memoryview, dtype: torch.dtype, release: Release) -> IncomingCopy:
        """Return the payload on the device; on the CPU that is the payload's own memory."""
        tensor = self._device.received(payload, dtype)
        if not self.keeps_payload:
            release(payload)
        return _IncomingTensor(tensor)

    def take_back(self, tensor: Tensor, copy: OutgoingCopy) -> None:
        """Copy the payload back; on the CPU do nothing, because it is the same memory."""
        if not self.keeps_payload:
            tensor.copy_(as_tensor(copy.payload(), tensor.dtype).view(tensor.shape))

    def receive_buffer(self, size_bytes: int) -> memoryview | None:
        """Return None: any memory will do."""
        return None

    def settle(self) -> None:
        """Do nothing: no copy is under way."""


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
    """A copy that is not known to be done, and what must stay until then."""

    outward: bool
    before: DeviceEvent
    done: DeviceEvent
    size_bytes: int
    held: Tensor
    let_go: Callable[[], None]


class PinnedStaging(Staging):
    """A GPU: copies on two streams of their own, through pinned buffers that are used again.

    A copy to the host begins when the kernels enqueued so far have ended, and later kernels need not wait for it. A
    copy to the device begins at once, and only what uses the tensor waits.
    """

    overlaps = True
    keeps_payload = False

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._outward, self._inward = runtime.copy_stream(), runtime.copy_stream()
        self._buffers: dict[int, list[Tensor]] = {}
        self._under_way: list[_UnderWay] = []
        self.to_host = self.to_device = Staged()

    def outgoing(self, tensor: Tensor) -> OutgoingCopy:
        """Begin a copy to a pinned buffer."""
        source = tensor.detach().contiguous()
        size_bytes = source.nbytes
        free = self._buffers.setdefault(size_bytes, [])
        buffer = free.pop() if free else self._runtime.pinned(size_bytes)
        target = buffer.view(source.dtype).view(source.shape)
        done = self._copy(self._outward, target, source, held=source, outward=True)
        return _PinnedOutgoing(buffer, done, free.append)

    def incoming(self, payload: memoryview, dtype: torch.dtype, release: Release) -> IncomingCopy:
        """Begin a copy of ``payload``. Only a payload in a ``receive_buffer`` is copied while other work goes on."""
        source = as_tensor(payload, dtype)
        tensor = self._runtime.empty(source.numel(), dtype)
        done = self._copy(self._inward, tensor, source, held=tensor, outward=False, let_go=lambda: release(payload))
        return _PinnedIncoming(tensor, done, self._runtime.compute_stream())

    def take_back(self, tensor: Tensor, copy: OutgoingCopy) -> None:
        """Copy the payload back, and wait until that is done."""
        source = as_tensor(copy.payload(), tensor.dtype).view(tensor.shape)
        self._copy(self._inward, tensor, source, held=tensor, outward=False).wait()
        copy.release()

    def receive_buffer(self, size_bytes: int) -> memoryview | None:
        """Return pinned memory."""
        return as_bytes(self._runtime.pinned(size_bytes))

    def settle(self) -> None:
        """Release the copies that are done, and keep the others for the next call."""
        under_way, self._under_way = self._under_way, []
        for copy in under_way:
            if not copy.done.passed():
                self._under_way.append(copy)
                continue
            took_ns = round(copy.done.since_ns(copy.before))
            if copy.outward:
                self.to_host = self.to_host.plus(copy.size_bytes, took_ns)
            else:
                self.to_device = self.to_device.plus(copy.size_bytes, took_ns)
            copy.let_go()

    def _copy(
        self,
        stream: DeviceStream,
        target: Tensor,
        source: Tensor,
        *,
        held: Tensor,
        outward: bool,
        let_go: Callable[[], None] = lambda: None,
    ) -> DeviceEvent:
        computed, before, done = (self._runtime.event() for _ in range(3))
        # Outward, the source is yet to be computed; inward, the target's memory may yet be read by what had it before.
        self._runtime.compute_stream().record(computed)
        stream.wait_for(computed)
        stream.record(before)
        stream.copy(target, source)
        stream.record(done)
        self._under_way.append(_UnderWay(outward, before, done, source.nbytes, held, let_go))
        return done


def create_staging(device: TorchDevice) -> Staging:
    """Return the staging for computation on ``device``."""
    return DirectStaging(device) if device.runtime is None else PinnedStaging(device.runtime)
