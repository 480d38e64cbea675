"""The devices that torch computes on: their kernels, the time of their work, and tensors as bytes in host memory.

A process computes with torch's fastest kernels, or with those that give the same bits in every run. The latter make a
GPU slower: cuDNN's attention is refused, and FlashAttention's backward sums in a fixed order.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.utils.deterministic
from torch import Tensor

from wanbed.workloads.compute.device.device_runtime import CudaRuntime, DeviceRuntime
from wanbed.workloads.compute.device_settings import DEVICES, DeviceSettings


def as_tensor(data: memoryview, dtype: torch.dtype) -> Tensor:
    """Return the elements of ``data`` as a flat tensor in the same memory."""
    return torch.frombuffer(data, dtype=dtype)


def as_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor in host memory, writable. They keep that memory alive."""
    # Viewed as uint8, because numpy has no bfloat16.
    return tensor.detach().view(-1).view(torch.uint8).numpy().data


def choose_kernels(*, deterministic: bool) -> None:
    """Let torch use any kernel or, if ``deterministic``, refuse those that may give other bits in another run."""
    if deterministic:
        # cuBLAS sums in a fixed order only with a fixed workspace. Set it before the first use of cuBLAS.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    # Filling new tensors with NaN is torch's aid for finding reads of undefined memory. It would be part of the spans.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def kernels_are_deterministic() -> bool:
    """Return whether torch refuses kernels that may give other bits in another run."""
    return torch.are_deterministic_algorithms_enabled()


class TorchDevice(ABC):
    """One CPU or GPU. It runs one action at a time."""

    device: torch.device

    shares_memory: bool
    """True if received tensors use the memory of their payload instead of a copy."""

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


class GpuDevice(TorchDevice):
    """A GPU. Bytes are copied to and from it through pinned memory.

    The interval of ``timed`` ends when the host has seen the device finish. Its length is the time on the device
    between an event recorded before the work and one recorded after it.
    """

    shares_memory = False
    runtime: DeviceRuntime

    def __init__(self, device: torch.device, runtime: DeviceRuntime) -> None:
        self.device = device
        self.runtime = runtime

    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        """Return a copy, complete on return."""
        staged = self.runtime.scratch(payload.nbytes).view(dtype)
        staged.copy_(as_tensor(payload, dtype))
        compute = self.runtime.compute_stream()
        tensor = self.runtime.empty(staged.numel(), dtype, filled_on=compute, used_on=compute)
        self._copy(tensor, staged)
        return tensor

    def on_host(self, tensor: Tensor) -> Tensor:
        """Return a copy in pinned memory, complete on return."""
        source = tensor.detach().contiguous()
        staged = self.runtime.scratch(source.nbytes).view(source.dtype).view(source.shape)
        self._copy(staged, source)
        # No view: torch's schedules detach in place what a stage returns, which views refuse.
        return staged.detach()

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Its end is when the host saw the second event, its length the time between the events."""
        before, after = self.runtime.event(), self.runtime.event()
        compute = self.runtime.compute_stream()
        compute.record(before)
        work()
        compute.record(after)
        after.wait()
        end_ns = time.monotonic_ns()
        return end_ns - round(after.since_ns(before)), end_ns

    def own_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Return contexts of one stream. The GPU's scheduler shares its units with other streams."""
        stream = self.runtime.new_stream()
        return lambda: self.runtime.use(stream)

    def _copy(self, target: Tensor, source: Tensor) -> None:
        compute, done = self.runtime.compute_stream(), self.runtime.event()
        compute.copy(target, source)
        compute.record(done)
        done.wait()


class CudaDevice(GpuDevice):
    """The current GPU. Raises ValueError if torch finds none."""

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise ValueError("device: torch sees no GPU here, take cpu or auto")
        device = torch.device("cuda", torch.cuda.current_device())
        super().__init__(device, CudaRuntime(device))


def configured_device(settings: DeviceSettings) -> TorchDevice:
    """Set torch's threads and its choice of kernels for the whole process, and return the device.

    Raise ValueError if there is none.
    """
    torch.set_num_threads(settings.threads)
    choose_kernels(deterministic=settings.deterministic)
    return create_device(settings.name)


def create_device(name: str) -> TorchDevice:
    """Return the device of that name (see ``DeviceSettings``). Raise ValueError if there is none."""
    if name not in DEVICES:
        raise ValueError(f"device: {name!r} is none of {', '.join(DEVICES)}")
    if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
        return CudaDevice()
    return CpuDevice()
