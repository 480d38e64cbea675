"""Where torch computes, how bytes get there and back, and how long an action takes there."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from workloads.compute.device_runtime import CudaRuntime, DeviceRuntime
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
        """The elements of ``payload``, a flat tensor on the device."""

    @abstractmethod
    def on_host(self, tensor: Tensor) -> Tensor:
        """A contiguous tensor in the CPU's memory with the same elements; the same tensor where it is one."""

    @abstractmethod
    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``; when it began and ended, in CLOCK_MONOTONIC nanoseconds."""

    @abstractmethod
    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """A queue of the device's own work: what a thread asks for within such a context goes beside all else.

        Within it, what the other methods give is complete on return; what ``timed`` carries out is then too.
        """


class CpuDevice(TorchDevice):
    """The CPU: nothing is copied, and ``timed`` is from the call to the return."""

    device = torch.device("cpu")
    shares_memory = True

    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        """The payload's own memory."""
        return as_tensor(payload, dtype)

    def on_host(self, tensor: Tensor) -> Tensor:
        """The tensor itself, unless its elements do not lie in order."""
        return tensor.detach().contiguous()

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """From the call to the return."""
        start_ns = time.monotonic_ns()
        work()
        return start_ns, time.monotonic_ns()

    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Nothing: what a thread asks for is done when it returns."""
        return nullcontext


class CudaDevice(TorchDevice):
    """The current GPU; bytes go to it and come back through pinned memory.

    ``timed`` ends when the host has seen the device finish, and is as long as the device took between two events, the
    first recorded before the work was enqueued and the second after it. Kernels that could give other bits from run to
    run are refused by torch.
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
        """A copy, complete on return."""
        staged = torch.empty(payload.nbytes // dtype.itemsize, dtype=dtype, pin_memory=True)
        staged.copy_(as_tensor(payload, dtype))
        return staged.to(self.device)

    def on_host(self, tensor: Tensor) -> Tensor:
        """A copy in pinned memory, complete on return."""
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return staged.copy_(tensor.detach())

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """As long as between the events, up to when the host saw the second."""
        before = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        after = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        before.record()
        work()
        after.record()
        after.synchronize()
        end_ns = time.monotonic_ns()
        return end_ns - round(before.elapsed_time(after) * 1e6), end_ns

    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """A CUDA stream. Its work shares the GPU's units with that of other streams, however it is scheduled."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return lambda: torch.cuda.stream(stream)


def create_device(name: str) -> TorchDevice:
    """The device of that name (see ``TorchWork``). Raises ValueError if there is none."""
    if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
        return CudaDevice()
    return CpuDevice()
