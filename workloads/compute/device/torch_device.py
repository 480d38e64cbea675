"""The devices that torch computes on: they copy bytes there and back, and time actions."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from workloads.compute.device.device_runtime import CudaRuntime, DeviceRuntime
from workloads.compute.tensor_bytes import as_tensor


class TorchDevice(ABC):
    """One CPU or GPU that actions run on, one at a time."""

    device: torch.device

    shares_memory: bool
    """Whether tensors received live in the memory of their payload, rather than in a copy."""

    runtime: DeviceRuntime | None = None
    """Streams, events and pinned memory; None where what is asked for is done when the call returns."""

    @abstractmethod
    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        """Return the elements of ``payload`` as a flat tensor on the device."""

    @abstractmethod
    def on_host(self, tensor: Tensor) -> Tensor:
        """Return a contiguous tensor in the CPU's memory with the same elements; ``tensor`` itself where it is one."""

    @abstractmethod
    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Returns when it began and ended, in CLOCK_MONOTONIC nanoseconds."""

    @abstractmethod
    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Return a maker of contexts. What a thread enqueues within one goes to a queue beside all other work.

        Within it, what the other methods return is complete on return, and so is what ``timed`` carries out.
        """


class CpuDevice(TorchDevice):
    """The CPU: nothing is copied, and ``timed`` measures from the call to the return."""

    device = torch.device("cpu")
    shares_memory = True

    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        """Return the payload's own memory."""
        return as_tensor(payload, dtype)

    def on_host(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself, unless its elements do not lie in order."""
        return tensor.detach().contiguous()

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``, timed from the call to the return."""
        start_ns = time.monotonic_ns()
        work()
        return start_ns, time.monotonic_ns()

    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Return a context that does nothing: what a thread calls is done when it returns."""
        return nullcontext


class CudaDevice(TorchDevice):
    """The current GPU; bytes go to it and come back through pinned memory.

    ``timed`` ends when the host has seen the device finish, and is as long as the device took between two events, the
    first recorded before the work was enqueued and the second after it. torch refuses kernels that could give other
    bits from run to run.
    """

    shares_memory = False

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise ValueError("device: torch sees no GPU here, take cpu or auto")
        # cuBLAS sums in a fixed order only with a fixed workspace; to be set before its first use.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
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
        """Return contexts of one CUDA stream. Its work shares the GPU's units with other streams, however scheduled."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return lambda: torch.cuda.stream(stream)


def create_device(name: str) -> TorchDevice:
    """Return the device of that name (see ``TorchWork``). Raises ValueError if there is none."""
    if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
        return CudaDevice()
    return CpuDevice()
