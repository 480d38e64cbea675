"""Train a whole GPT with torch on a device that holds two neighbouring groups of its layers at a time.

The cost of swapping is recorded iteration by iteration, beside the formula of the groups.
"""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
import torch
from torch import Tensor

from wanbed.results.records.span_log import DeviceRecord, SwappedGroup, SwappingRecord
from wanbed.workloads.compute.compute import Compute, MeasuredDevice
from wanbed.workloads.compute.device.device_measurement import DeviceMeasurement
from wanbed.workloads.compute.device.staging import Staged
from wanbed.workloads.compute.device.torch_device import configured_device
from wanbed.workloads.compute.device_settings import SwapSettings
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.grouped_model import Copied, GroupedModel, create_copies
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.grouping import Grouping, LayerGroup, SwappedLayer, SwappedModel, best_grouping, passes_ns
from wanbed.workloads.message import Message
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.synchronization.outer_optimizer import OuterOptimizer, OuterSteps


@dataclass
class _Times:
    """The times of one group, an entry for each iteration, or for each load."""

    forward_ns: list[int] = field(default_factory=list)
    backward_ns: list[int] = field(default_factory=list)
    load_ns: list[int] = field(default_factory=list)


class SwappingMeasurement:
    """Collects the iterations of a rank. ``layers`` and ``sizes_bytes`` are those of its groups.

    ``planned_ns`` is what the model of the grouping expects both passes to take, None where nothing gave it times.
    """

    def __init__(
        self, layers: Sequence[int], sizes_bytes: Sequence[int], memory_bytes: int, planned_ns: int | None
    ) -> None:
        self._layers = tuple(layers)
        self._sizes_bytes = tuple(sizes_bytes)
        self._memory_bytes = memory_bytes
        self._planned_ns = planned_ns
        self._times = [_Times() for _ in self._layers]
        self._passes_ns: list[int] = []
        self._total = Copied()

    def iteration(
        self,
        passes_ns: int,
        forward_ns: Sequence[int],
        backward_ns: Sequence[int],
        loads: Sequence[int],
        copied: Copied,
    ) -> None:
        """Add an iteration: how long both passes took, how long each group computed, and the groups loaded."""
        self._passes_ns.append(passes_ns)
        for times, forward, backward in zip(self._times, forward_ns, backward_ns, strict=True):
            times.forward_ns.append(forward)
            times.backward_ns.append(backward)
        for group, load_ns in zip(loads, copied.loads_ns, strict=True):
            self._times[group].load_ns.append(load_ns)
        total = self._total
        total.loads_ns += copied.loads_ns
        total.returns_ns += copied.returns_ns
        total.loaded_bytes += copied.loaded_bytes
        total.returned_bytes += copied.returned_bytes
        total.load_wait_ns += copied.load_wait_ns
        total.return_wait_ns += copied.return_wait_ns

    def record(self) -> SwappingRecord | None:
        """Return what has been measured so far; None before the first iteration."""
        if not self._passes_ns:
            return None
        groups = [
            SwappedGroup(
                layers,
                size_bytes,
                _middle(times.forward_ns),
                _middle(times.backward_ns),
                _middle(times.load_ns),
            )
            for layers, size_bytes, times in zip(self._layers, self._sizes_bytes, self._times, strict=True)
        ]
        total = self._total
        return SwappingRecord(
            groups=tuple(groups),
            memory_bytes=self._memory_bytes,
            planned_ns=self._planned_ns,
            formula_ns=passes_ns(
                [LayerGroup(each.forward_ns, each.backward_ns, each.load_ns, each.size_bytes) for each in groups]
            ),
            both_passes_ns=_middle(self._passes_ns),
            iterations=len(self._passes_ns),
            loaded_bytes=total.loaded_bytes,
            load_ns=sum(total.loads_ns),
            returned_bytes=total.returned_bytes,
            return_ns=sum(total.returns_ns),
            load_wait_ns=total.load_wait_ns,
            return_wait_ns=total.return_wait_ns,
        )


def _middle(times_ns: Sequence[int]) -> int:
    return round(median(times_ns))


_TRIALS = 3
"""The passes by which groups are chosen. The first ones warm the device up, the last one counts."""


class SwappedCompute(Compute, MeasuredDevice):
    """Trains the model as configured by ``work``, in the groups of ``swapping``.

    Weights, gradients and AdamW's state lie in host memory, in ``parameters``, and the optimizer works there, on as
    many of the CPU's cores as the device has threads. So do the steps of its synchronisations, ``synchronized``, None
    without any; a state that has been taken over is given to ``release``. An action's chunk is the group that it
    computes. The actions of an iteration come in the order of ``GroupByGroup``, with ``groups`` groups. What a group
    passes on to its neighbour stays on the device. Losses and gradients are those of ``TorchCompute``, bit by bit on
    the CPU.

    Where no groups are given, each layer's times and the rate of loads are measured by passes of one layer a group,
    and the groups with the shortest iteration are taken.

    No span includes waiting for a load. Raises ValueError for a missing device, a text that is too short, or a memory
    that no groups fit into, OSError if the text cannot be read.
    """

    def __init__(
        self, work: TorchWork, swapping: SwapSettings, release: Callable[[memoryview], None] = lambda _: None
    ) -> None:
        learning = work.learning
        self._work = work
        self._device = configured_device(work.device)
        self._measurement = DeviceMeasurement(self._device, work.device.check_iteration)
        self._copies = create_copies(self._device)
        self._tokens = TokenSource(learning.model, learning.seed, learning.text, learning.held_out)
        module = build_stage(learning.model, 0, 1, learning.seed, DTYPES[learning.precision])
        self.parameters = FlatParameters(module, learning.learning_rate, self._copies.host_memory)
        self.synchronized: OuterSteps | None = None
        if work.synchronization is not None:
            parameters = self.parameters
            outer = OuterOptimizer(
                parameters.exact, work.synchronization, work.computed.pipelines, changed=parameters.exact_changed
            )
            self.synchronized = OuterSteps(outer, self._stepped, release)
        self._iteration = 0
        self._began_ns = self._ended_ns = 0
        self._performed: list[Action | None] = []
        self._targets: dict[int, Tensor] = {}
        self._losses: dict[int, Tensor] = {}
        planned: Grouping | None = None
        if (sizes := swapping.layers_of_groups) is None:
            planned = self._measured_grouping(swapping.memory_bytes)
            sizes = planned.sizes
        self._model = self._grouped(sizes)
        self._swapping = SwappingMeasurement(
            sizes,
            self._model.sizes_bytes,
            self._model.memory_bytes,
            None if planned is None else planned.iteration_ns,
        )

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self._model.sizes)

    def begin(self, iteration: int) -> None:
        """Begin ``iteration``, and the load of the first group."""
        self._iteration = iteration
        self._losses.clear()
        self._measurement.begin(iteration)
        self._began_ns = time.monotonic_ns()
        self._model.begin()

    def arrived(self, message: Message, payload: memoryview) -> None:
        """Raise AssertionError: a whole model has no neighbour stages."""
        raise AssertionError(f"{message} came to a rank that has the whole model")

    def perform(self, action: Action) -> tuple[int, int]:
        """Carry out ``action`` in the group that is its chunk. Return its start and end, without waits for loads."""
        model, group, microbatch = self._model, action.chunk, action.microbatch
        tokens = self._prepared(action)
        model.enter(group, backward=action.kind is not ActionKind.FORWARD)

        def work() -> None:
            match action.kind:
                case ActionKind.FORWARD:
                    loss = model.forward(group, microbatch, tokens)
                    if loss is not None:
                        self._losses[microbatch] = loss
                case ActionKind.RECOMPUTE:
                    model.recompute(group, microbatch)
                case ActionKind.BACKWARD:
                    model.backward(group, microbatch)
                case _:
                    raise ValueError(f"split_backward: a group's backward is whole, but the schedule asks for {action}")

        interval = self._measurement.timed(action.kind.value, work)
        self._performed.append(action)
        if action.kind is ActionKind.BACKWARD:
            model.leave(group)
            self._ended_ns = time.monotonic_ns()
        return interval

    def outgoing(self, message: Message) -> memoryview:
        """Raise AssertionError: a whole model has no neighbour stages."""
        raise AssertionError(f"{message} of a rank that has the whole model")

    def sent(self, message: Message) -> None:
        """Raise AssertionError: a whole model has no neighbour stages."""
        raise AssertionError(f"{message} of a rank that has the whole model")

    def gradients(self) -> memoryview | None:
        """Return None: replicas that swap train alone."""
        return None

    def add(self, total: memoryview, part: memoryview) -> None:
        """Raise AssertionError: replicas that swap train alone."""
        raise AssertionError("replicas that swap sum no gradients")

    def update(self) -> tuple[int, int]:
        """Wait until all gradients are in host memory, and take one step of AdamW there. Return its start and end."""
        self._model.finish()
        return self._stepped(self.parameters.update)

    def loss(self) -> float | None:
        """Return the mean loss of this replica's microbatches, before the update."""
        if len(self._losses) < self._work.computed.microbatches:
            return None
        # The exact sum does not depend on the order in which a schedule runs the forwards.
        return math.fsum(torch.stack(tuple(self._losses.values())).tolist())

    def named_gradients(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """Return an fp32 copy of each parameter's gradient by its name in the model."""
        self._model.finish()
        return self.parameters.gradient_arrays()

    @property
    def overlaps_copies(self) -> bool:
        """Return False: there are no messages to copy."""
        return False

    def begin_copy(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Raise AssertionError: a whole model has no neighbour stages."""
        raise AssertionError(f"{message} came to a rank that has the whole model")

    def resolve(self) -> Sequence[tuple[int, int]]:
        """Return the busy intervals of the device since the last call. Call it once an iteration, after ``update``."""
        intervals, forward_ns, backward_ns, copied = self._resolved()
        passes_ns = self._ended_ns - self._began_ns
        self._swapping.iteration(passes_ns, forward_ns, backward_ns, self._model.loads, copied)
        return intervals

    def _resolved(self) -> tuple[list[tuple[int, int]], list[int], list[int], Copied]:
        """Return the intervals since the last call, how long each group computed in each pass, and the copies."""
        intervals = self._measurement.resolve()
        forward_ns, backward_ns = [0] * self.groups, [0] * self.groups
        for action, (start_ns, end_ns) in zip(self._performed, intervals, strict=True):
            if action is not None:
                times_ns = forward_ns if action.kind is ActionKind.FORWARD else backward_ns
                times_ns[action.chunk] += end_ns - start_ns
        self._performed.clear()
        return intervals, forward_ns, backward_ns, self._copies.settle()

    def record(self) -> DeviceRecord:
        """Return the measurements of the device so far. No messages were copied."""
        return self._measurement.record(Staged(), Staged())

    def swapping_record(self) -> SwappingRecord | None:
        """Return what swapping took so far; None before the first iteration."""
        return self._swapping.record()

    def _stepped(self, step: Callable[[], None]) -> tuple[int, int]:
        self._performed.append(None)
        return self._measurement.timed("optimizer", step)

    def _grouped(self, sizes: Sequence[int]) -> GroupedModel:
        return GroupedModel(
            self._work.learning.model,
            self.parameters,
            sizes,
            self._copies,
            microbatches=self._work.computed.microbatches,
            loss=self._part_of_loss,
        )

    def _part_of_loss(self, output: Tensor, microbatch: int) -> Tensor:
        return language_loss(output, self._targets[microbatch]) / self._work.computed.microbatches

    def _prepared(self, action: Action) -> Tensor | None:
        """Bring a forward's tokens or targets to the device. Return the tokens in the first group, else None."""
        if action.kind is not ActionKind.FORWARD:
            return None
        batch = self._tokens.batch(self._iteration, self._work.computed.pipeline, action.microbatch)
        if action.chunk == self.groups - 1:
            self._targets[action.microbatch] = batch[1].to(self._device.device)
        return batch[0].to(self._device.device) if action.chunk == 0 else None

    def _measured_grouping(self, memory_bytes: int | None) -> Grouping:
        """Return the best groups by the times of one microbatch in each layer, and the rate at which layers load."""
        whole, layers = self._work, self._work.learning.model.layers
        self._work = replace(whole, computed=replace(whole.computed, microbatches=1))
        self._model = self._grouped([1] * layers)
        for _ in range(_TRIALS):
            self._model.begin()
            for group in range(layers):
                self.perform(Action(ActionKind.FORWARD, 0, group))
            for group in reversed(range(layers)):
                self.perform(Action(ActionKind.RECOMPUTE, 0, group))
                self.perform(Action(ActionKind.BACKWARD, 0, group))
            self._model.finish()
            _, forward_ns, backward_ns, copied = self._resolved()
        rate = copied.loaded_bytes * 10**9 // max(1, sum(copied.loads_ns))
        costs = zip(forward_ns, backward_ns, self._model.sizes_bytes, strict=True)
        self._work = whole
        # The groups' modules refer to themselves, so that only the garbage collector frees their memory.
        del self._model
        gc.collect()
        swapped = tuple(SwappedLayer(*each) for each in costs)
        return best_grouping(SwappedModel(swapped, whole.computed.microbatches, max(1, rate), memory_bytes))
