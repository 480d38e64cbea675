"""A whole model, cut into groups of layers of which two neighbouring ones are on the device at a time.

All microbatches pass a group while it is there: forwards from the first group to the last, then backwards from the last
to the first. A group is loaded while the one before it computes, and its gradients go back to host memory while the
next one computes. A group keeps only the input of each microbatch, and computes the rest again before its backward,
because the graph of a forward would need weights that have left the device.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.swapping.group_copies import GroupCopies
from wanbed.workloads.model.gpt_config import GptConfig
from wanbed.workloads.model.gpt_stage import GptStage
from wanbed.workloads.model.undrawn_module import placed_module
from wanbed.workloads.swapping.two_ends import end_of, lay_out


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
