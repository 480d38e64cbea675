"""The devices that torch computes on: copy tensors to and from them, and time their work."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from workloads.compute.device.device_runtime import CudaRuntime, DeviceRuntime
from workloads.compute.tensor_bytes import as_tensor


class TorchDevice(ABC):
    """One CPU or GPU. It runs one action at a time."""

    device: torch.device

    shares_memory: bool
    """Whether received tensors use the memory of their payload instead of a copy."""

    runtime: DeviceRuntime | None = None
    """Streams, events and pinned memory; None if calls of torch return only after the work is done."""

    @abstractmethod
    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        """Return the elements of ``payload`` as a flat tensor on the device."""

    @abstractmethod
    def on_host(self, tensor: Tensor) -> Tensor:
        """Return a contiguous tensor in host memory with the same elements: ``tensor`` itself if it is one."""

    @abstractmethod
    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Return its start and end in CLOCK_MONOTONIC nanoseconds."""

    @abstractmethod
    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Return a function that creates contexts. Within one, a thread enqueues its work on a separate stream.

        Within it, the results of the other methods and the work of ``timed`` are complete on return.
        """


class CpuDevice(TorchDevice):
    """The CPU. Nothing is copied, and ``timed`` measures from the call to the return."""

    device = torch.device("cpu")
    shares_memory = True

    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        """Return the payload's own memory."""
        return as_tensor(payload, dtype)

    def on_host(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself if it is contiguous, else a contiguous copy."""
        return tensor.detach().contiguous()

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``, timed from the call to the return."""
        start_ns = time.monotonic_ns()
        work()
        return start_ns, time.monotonic_ns()

    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Return contexts that do nothing: work on the CPU is done when the call returns."""
        return nullcontext


class CudaDevice(TorchDevice):
    """The current GPU. Bytes are copied to and from it through pinned memory.

    The interval of ``timed`` ends when the host has seen the device finish. Its length is the time on the device
    between an event recorded before the work and one recorded after it. Raises ValueError if torch finds no GPU.
    """

    shares_memory = False

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise ValueError("device: torch sees no GPU here, take cpu or auto")
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.runtime = CudaRuntime(self.device)

    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        """Return a copy, complete on return."""
        staged = torch.empty(payload.nbytes // dtype.itemsize, dtype=dtype, pin_memory=True)
        staged.copy_(as_tensor(payload, dtype))
        return staged.to(self.device)

    def on_host(self, tensor: Tensor) -> Tensor:
        """Return a copy in pinned memory, complete on return."""
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return staged.copy_(tensor.detach())

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Its end is when the host saw the second event, its length the time between the events."""
        before = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        after = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        before.record()
        work()
        after.record()
        after.synchronize()
        end_ns = time.monotonic_ns()
        return end_ns - round(before.elapsed_time(after) * 1e6), end_ns

    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Return contexts of one CUDA stream. The GPU's scheduler shares its units with other streams."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return lambda: torch.cuda.stream(stream)


def create_device(name: str) -> TorchDevice:
    """Return the device of that name (see ``TorchWork``). Raise ValueError if there is none."""
    if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
        return CudaDevice()
    return CpuDevice()
