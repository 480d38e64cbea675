"""The copies of groups of layers between host memory and the device, and how long computation waits for them.

On a GPU each direction has a stream of its own. A load runs while the group before it computes, and a group's gradients
go back while the next one computes. On the CPU the same copies are made between two buffers in host memory, one after
the other: a copy keeps the core busy that computes, so that nothing hides behind anything.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime, DeviceStream
from wanbed.workloads.compute.device.torch_device import TorchDevice


@dataclass
class Copied:
    """The copies of an iteration: how long each one took, in order, and how long was waited for them.

    ``load_wait_ns`` is how long the device waited for loads and computed nothing, ``return_wait_ns`` how long the host
    waited for gradients after the last one had been computed.
    """

    loads_ns: list[int] = field(default_factory=list)
    loaded_bytes: int = 0
    returns_ns: list[int] = field(default_factory=list)
    returned_bytes: int = 0
    load_wait_ns: int = 0
    return_wait_ns: int = 0


class GroupCopies(ABC):
    """The copies of one device, in both directions. All calls come from the computing thread."""

    @abstractmethod
    def host_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return host memory that the device copies from and to while it computes."""

    @abstractmethod
    def weights_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return memory of the device for weights that are loaded."""

    @abstractmethod
    def gradients_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return memory of the device for gradients that go back."""

    @abstractmethod
    def load(self, group: int, target: Tensor, source: Tensor) -> None:
        """Begin to load the weights of a group, once everything enqueued so far has been computed."""

    @abstractmethod
    def await_load(self, group: int) -> None:
        """Let what is enqueued from now on wait for the load of a group."""

    @abstractmethod
    def give_back(self, end: int, target: Tensor, source: Tensor) -> None:
        """Begin to copy gradients that have been enqueued to the host, from this end of their memory."""

    @abstractmethod
    def await_room(self, end: int) -> None:
        """Let what is enqueued from now on wait until the gradients at this end have been copied."""

    @abstractmethod
    def await_returns(self) -> None:
        """Wait until all gradients are in host memory."""

    @abstractmethod
    def settle(self) -> Copied:
        """Return the copies since the last call. All have to be done."""


class HostCopies(GroupCopies):
    """Copies between two buffers in host memory. Each is done when the call returns."""

    def __init__(self) -> None:
        self._copied = Copied()

    def host_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return ordinary memory."""
        return torch.empty(elements, dtype=dtype)

    def weights_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return ordinary memory."""
        return torch.empty(elements, dtype=dtype)

    def gradients_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return ordinary memory."""
        return torch.empty(elements, dtype=dtype)

    def load(self, group: int, target: Tensor, source: Tensor) -> None:
        """Copy the weights. The core that computes waits meanwhile."""
        copy_ns = _copy(target, source)
        self._copied.loads_ns.append(copy_ns)
        self._copied.loaded_bytes += source.nbytes
        self._copied.load_wait_ns += copy_ns

    def await_load(self, group: int) -> None:
        """Do nothing: the weights are there."""

    def give_back(self, end: int, target: Tensor, source: Tensor) -> None:
        """Copy the gradients."""
        copy_ns = _copy(target, source)
        self._copied.returns_ns.append(copy_ns)
        self._copied.returned_bytes += source.nbytes
        self._copied.return_wait_ns += copy_ns

    def await_room(self, end: int) -> None:
        """Do nothing: the gradients have been copied."""

    def await_returns(self) -> None:
        """Do nothing: the gradients are there."""

    def settle(self) -> Copied:
        """Return the copies since the last call."""
        copied, self._copied = self._copied, Copied()
        return copied


def _copy(target: Tensor, source: Tensor) -> int:
    begin_ns = time.monotonic_ns()
    target.copy_(source)
    return time.monotonic_ns() - begin_ns


@dataclass(frozen=True, slots=True)
class _Interval:
    """The copy between two events of one stream."""

    before: DeviceEvent
    after: DeviceEvent
    size_bytes: int = 0

    @property
    def length_ns(self) -> int:
        return round(self.after.since_ns(self.before))


class StreamCopies(GroupCopies):
    """Copies of a GPU between its memory and pinned memory, on one stream for each direction.

    A load waits for all that was enqueued to compute when it begins, because that may read what it overwrites; what
    computes while it runs uses the other end of the memory. Construct it in the computing thread.
    """

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._compute = runtime.compute_stream()
        self._inward, self._outward = runtime.new_stream(), runtime.new_stream()
        self._loaded: dict[int, DeviceEvent] = {}
        self._returned: dict[int, DeviceEvent] = {}
        self._loads: list[_Interval] = []
        self._returns: list[_Interval] = []
        self._waits: list[_Interval] = []
        self._return_wait_ns = 0

    def host_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return pinned memory."""
        return self._runtime.pinned(elements * dtype.itemsize).view(dtype)

    def weights_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return memory that belongs to the stream of loads, and is not reused before computation has read it."""
        return self._runtime.empty(elements, dtype, filled_on=self._inward, used_on=self._compute)

    def gradients_memory(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return memory that belongs to the compute stream, and is not reused before it has been copied."""
        return self._runtime.empty(elements, dtype, filled_on=self._compute, used_on=self._outward)

    def load(self, group: int, target: Tensor, source: Tensor) -> None:
        """Enqueue the load behind all computation enqueued so far."""
        self._after_compute(self._inward)
        load = self._copy(self._inward, target, source)
        self._loads.append(load)
        self._loaded[group] = load.after

    def await_load(self, group: int) -> None:
        """Let the compute stream wait. The time that it waits lies between two of its events."""
        asked, there = self._runtime.event(), self._runtime.event()
        self._compute.record(asked)
        self._compute.wait_for(self._loaded[group])
        self._compute.record(there)
        self._waits.append(_Interval(asked, there))

    def give_back(self, end: int, target: Tensor, source: Tensor) -> None:
        """Enqueue the copy behind all computation enqueued so far."""
        self._after_compute(self._outward)
        copy = self._copy(self._outward, target, source)
        self._returns.append(copy)
        self._returned[end] = copy.after

    def await_room(self, end: int) -> None:
        """Let the compute stream wait for the last copy from this end, if there was one."""
        if end in self._returned:
            self._compute.wait_for(self._returned[end])

    def await_returns(self) -> None:
        """Let the host sleep until the last copies of both ends are done."""
        begin_ns = time.monotonic_ns()
        for returned in self._returned.values():
            returned.wait()
        self._return_wait_ns += time.monotonic_ns() - begin_ns

    def settle(self) -> Copied:
        """Read the events of the copies since the last call."""
        copied = Copied(
            [load.length_ns for load in self._loads],
            sum(load.size_bytes for load in self._loads),
            [copy.length_ns for copy in self._returns],
            sum(copy.size_bytes for copy in self._returns),
            sum(wait.length_ns for wait in self._waits),
            self._return_wait_ns,
        )
        self._loads, self._returns, self._waits, self._return_wait_ns = [], [], [], 0
        return copied

    def _after_compute(self, stream: DeviceStream) -> None:
        computed = self._runtime.event()
        self._compute.record(computed)
        stream.wait_for(computed)

    def _copy(self, stream: DeviceStream, target: Tensor, source: Tensor) -> _Interval:
        interval = _Interval(self._runtime.event(), self._runtime.event(), source.nbytes)
        stream.record(interval.before)
        stream.copy(target, source)
        stream.record(interval.after)
        return interval


def create_copies(device: TorchDevice) -> GroupCopies:
    """Return the copies of groups between host memory and ``device``."""
    return HostCopies() if device.runtime is None else StreamCopies(device.runtime)
