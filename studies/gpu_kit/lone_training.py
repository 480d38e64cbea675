"""Train one replica in this process, without connections: with its layers swapped through the device, or all there."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from wanbed.results.records.span_log import SwappingRecord
from wanbed.runner.companions.losses.on_hosts.losses import largest_error
from wanbed.workloads.compute.swapping.swapped_compute import SwappedCompute
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.virtual.group_by_group import group_by_group


@dataclass(frozen=True)
class LoneTraining:
    """The outcome of a training: losses, the last iteration's gradients and the weights after it, by parameter, fp32.

    ``iterations_ns`` is how long each iteration took, without the optimizer, and ``optimizer_ns`` what that took.
    ``peak_bytes`` is the most memory of the GPU that tensors took at once, None on the CPU.
    """

    losses: tuple[float, ...]
    gradients: dict[str, Any]
    weights: dict[str, Any]
    iterations_ns: tuple[int, ...]
    optimizer_ns: tuple[int, ...]
    peak_bytes: int | None
    device: str
    swapping: SwappingRecord | None = None

    def loss_error(self, other: "LoneTraining") -> float:
        """Return the largest relative difference of two losses of one iteration, nan if one is nan."""
        return largest_error(self.losses, other.losses)

    def same_bits(self, other: "LoneTraining") -> bool:
        """Return whether losses, gradients and weights are equal, bit by bit."""
        return self.losses == other.losses and all(
            np.array_equal(found[name], expected[name])
            for found, expected in ((self.gradients, other.gradients), (self.weights, other.weights))
            for name in expected
        )


def train_alone(work: TorchWork, iterations: int, *, keeps_weights: bool = True) -> LoneTraining:
    """Train so many iterations, with swapping if ``work`` has it. Without ``keeps_weights`` no gradients are kept too.

    Raise the errors of the computation.
    """
    # A computation has reference cycles, so that only the garbage collector frees the memory of an earlier one.
    gc.collect()
    _begin_peak()
    compute: SwappedCompute | TorchCompute
    if work.swapping is None:
        compute = TorchCompute(work, lambda _: None)
        order = list(_whole(work.microbatches))
    else:
        compute = SwappedCompute(work)
        order = list(group_by_group(compute.groups, work.microbatches).order(0))
    losses, iterations_ns, optimizer_ns = [], [], []
    gradients: dict[str, Any] = {}
    for iteration in range(iterations):
        compute.begin(iteration)
        for action in order:
            compute.perform(action)
        if keeps_weights and iteration == iterations - 1:
            gradients = compute.named_gradients()
        compute.update()
        loss = compute.loss()
        assert loss is not None
        losses.append(loss)
        *computed, updated = compute.resolve()
        iterations_ns.append(computed[-1][1] - computed[0][0])
        optimizer_ns.append(updated[1] - updated[0])
    weights = {
        name: weights.detach().float().cpu().numpy().copy()
        for name, weights in (compute.parameters.named_weights() if keeps_weights else ())
    }
    return LoneTraining(
        tuple(losses),
        gradients,
        weights,
        tuple(iterations_ns),
        tuple(optimizer_ns),
        _peak_bytes(),
        compute.record().model,
        compute.swapping_record() if isinstance(compute, SwappedCompute) else None,
    )


def without_swapping(work: TorchWork) -> TorchWork:
    """Return the same work with the whole model on the device all the time."""
    return replace(work, swapping=None)


def _whole(microbatches: int) -> Iterator[Action]:
    for microbatch in range(microbatches):
        yield Action(ActionKind.FORWARD, microbatch)
    for microbatch in range(microbatches):
        yield Action(ActionKind.RECOMPUTE, microbatch)
        yield Action(ActionKind.BACKWARD, microbatch)


def _begin_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak_bytes() -> int | None:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
