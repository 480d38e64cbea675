"""A whole model, cut into groups of layers of which two neighbouring ones are on the device at a time.

All microbatches pass a group while it is there: forwards from the first group to the last, then backwards from the last
to the first. A group keeps only the input of each microbatch, and computes the rest again before its backward, because
the graph of a forward would need weights that have left the device.

On a GPU each direction of copies has a stream of its own. A load runs while the group before it computes, and a group's
gradients go back to host memory while the next one computes. On the CPU the same copies are made between two buffers in
host memory, one after the other: a copy keeps the core busy that computes, so that nothing hides behind anything.

Groups alternate between the low and the high end of the device's memory. Whatever group is loaded next, the one beside
it is untouched, and the memory is as large as the largest two neighbours, not as the two largest groups.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime, DeviceStream
from wanbed.workloads.compute.device.torch_device import TorchDevice
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import GptStage
from wanbed.workloads.gpt.initial_weights import placed_module


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


_ALIGNED_ELEMENTS = 128
"""A group begins in memory where it begins in the whole model, modulo this: kernels may depend on the alignment."""

LOW, HIGH = 0, 1


def end_of(group: int) -> int:
    """Return the end of the memory at which a group lies."""
    return group % 2


@dataclass(frozen=True)
class TwoEnds:
    """The begin of each group in a memory of ``elements``."""

    starts: tuple[int, ...]
    elements: int


def lay_out(cuts: Sequence[tuple[int, int]]) -> TwoEnds:
    """Return the layout of consecutive groups, each from one element of the whole model to another."""
    low = [start % _ALIGNED_ELEMENTS for start, _ in cuts]
    # Rounded up: wherever a group at the high end begins, it may have to begin up to this much earlier.
    high = [end - start + _ALIGNED_ELEMENTS - 1 for start, end in cuts]
    taken = [
        high[group] if end_of(group) == HIGH else low[group] + end - start for group, (start, end) in enumerate(cuts)
    ]
    elements = max([*taken, *(one + other for one, other in pairwise(taken))])
    starts = []
    for group, (start, end) in enumerate(cuts):
        last = elements - (end - start)
        starts.append(last - (last - start) % _ALIGNED_ELEMENTS if end_of(group) == HIGH else low[group])
    return TwoEnds(tuple(starts), elements)


@dataclass(frozen=True, slots=True)
class _Group:
    """A group's layers on the device, and its part of the flat weights and gradients: there, and in host memory."""

    module: GptStage
    weights: Tensor
    gradients: Tensor
    host_weights: Tensor
    host_gradients: Tensor


class GroupedModel:
    """The model of ``host``, whose parameters are those of the whole model in order, in groups of ``sizes`` layers.

    ``loss`` maps the last group's output for a microbatch to its part of the loss. Call ``begin``, then each forward,
    recompute and backward of every microbatch in every group, group by group, each after ``enter``, which is not part
    of its span. Weights in host memory may change only between ``finish`` and ``begin``. ``memory_bytes`` is what the
    device has for the weights of two groups, and again for their gradients. ``loads`` are the groups loaded since
    ``begin``, in order.
    """

    def __init__(
        self,
        config: GptConfig,
        host: FlatParameters,
        sizes: Sequence[int],
        copies: GroupCopies,
        *,
        microbatches: int,
        loss: Callable[[Tensor, int], Tensor],
    ) -> None:
        self.sizes = tuple(sizes)
        self._copies = copies
        self._microbatches = microbatches
        self._loss = loss
        self._groups, self.memory_bytes = _groups(config, host, self.sizes, copies)
        self._last = len(self._groups) - 1
        self._in_memory: dict[int, int] = {}
        self._inputs: dict[tuple[int, int], Tensor] = {}
        self._roots: dict[tuple[int, int], GradientEdge] = {}
        self._gradients: dict[int, Tensor] = {}
        self._entered: tuple[bool, int] | None = None
        self._backwards = 0
        self.loads: list[int] = []

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """The size of the weights of each group."""
        return tuple(group.weights.nbytes for group in self._groups)

    def begin(self) -> None:
        """Begin an iteration: no group is on the device, and the first one is loaded."""
        self._in_memory.clear()
        self._entered = None
        self.loads.clear()
        self._load(0)

    def enter(self, group: int, *, backward: bool) -> None:
        """Prepare the device for the next action of a group: begin its neighbour's load, and wait for its own."""
        if self._entered == (backward, group):
            return
        self._entered = backward, group
        following = group - 1 if backward else group + 1
        # The last group's forwards leave the one before it on the device.
        if 0 <= following <= self._last and self._in_memory.get(end_of(following)) != following:
            self._load(following)
        self._copies.await_load(group)
        if backward:
            self._copies.await_room(end_of(group))
            self._groups[group].gradients.zero_()
            self._backwards = 0

    def forward(self, group: int, microbatch: int, tokens: Tensor | None) -> Tensor | None:
        """Compute a forward. Return the loss in the last group, else None. The first group takes ``tokens``."""
        if tokens is not None:
            self._inputs[group, microbatch] = tokens
        with torch.no_grad():
            output = self._output(group, microbatch)
        if group == self._last:
            return output
        self._inputs[group + 1, microbatch] = output.requires_grad_()
        return None

    def recompute(self, group: int, microbatch: int) -> None:
        """Compute the forward again, for the backward that follows."""
        self._roots[group, microbatch] = get_gradient_edge(self._output(group, microbatch))

    def backward(self, group: int, microbatch: int) -> None:
        """Compute a backward, which adds to the gradients of the group and leaves that of its input."""
        inputs, root = self._inputs.pop((group, microbatch)), self._roots.pop((group, microbatch))
        one = torch.ones((), device=inputs.device) if group == self._last else self._gradients.pop(microbatch)
        torch.autograd.backward(root, one)
        if group:
            assert inputs.grad is not None
            self._gradients[microbatch] = inputs.grad

    def leave(self, group: int) -> None:
        """Count a backward that is done. The group's last one lets its gradients go back to host memory."""
        self._backwards += 1
        if self._backwards == self._microbatches:
            each = self._groups[group]
            self._copies.give_back(end_of(group), each.host_gradients, each.gradients)

    def finish(self) -> None:
        """Wait until the gradients of all groups are in host memory."""
        self._copies.await_returns()

    def _output(self, group: int, microbatch: int) -> Tensor:
        output: Tensor = self._groups[group].module(self._inputs[group, microbatch])
        return self._loss(output, microbatch) if group == self._last else output

    def _load(self, group: int) -> None:
        each = self._groups[group]
        self._in_memory[end_of(group)] = group
        self.loads.append(group)
        self._copies.load(group, each.weights, each.host_weights)


def _groups(
    config: GptConfig, host: FlatParameters, sizes: Sequence[int], copies: GroupCopies
) -> tuple[list[_Group], int]:
    """Return the groups, laid out in two memories of the device, of weights and of gradients, and the size of each."""
    parts = {name: part for (name, _), part in zip(host.named_weights(), host.parts().values(), strict=True)}
    layers = [range(start, end) for start, end in pairwise([0, *accumulate(sizes)])]
    names = [_names(config, each) for each in layers]
    cuts = [(parts[each[0]][0], parts[each[-1]][1]) for each in names]
    layout = lay_out(cuts)
    weights = copies.weights_memory(layout.elements, host.weights.dtype)
    gradients = copies.gradients_memory(layout.elements, host.weights.dtype)
    groups = []
    for number, (start, end) in enumerate(cuts):
        at = layout.starts[number]
        own, own_gradients = (memory[at : at + end - start] for memory in (weights, gradients))
        within = {name: slice(*(edge - start for edge in parts[name])) for name in names[number]}
        module = _module(config, layers[number], own, own_gradients, within)
        groups.append(_Group(module, own, own_gradients, host.weights[start:end], host.gradients[start:end]))
    return groups, weights.nbytes


def _module(
    config: GptConfig, layers: range, weights: Tensor, gradients: Tensor, within: Mapping[str, slice]
) -> GptStage:
    """Return a group's layers. Each parameter and its gradient are a part of the group's flat ones."""

    def place(name: str, shape: torch.Size) -> Tensor:
        # ``data`` has a version of its own. Otherwise a load would count as a change of the other group's weights.
        return weights[within[name]].view(shape).data

    module = placed_module(lambda: GptStage(config, layers), place)
    for name, parameter in module.named_parameters():
        parameter.grad = gradients[within[name]].view(parameter.shape)
    return module


def _names(config: GptConfig, layers: range) -> list[str]:
    with torch.device("meta"):
        return [name for name, _ in GptStage(config, layers).named_parameters()]
