"""Interleaved 1F1B: 1F1B over several virtual stages a GPU, so that bubbles are shorter."""

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualLayout


class ChunkedOrder(FixedOrder, ABC):
    """A fixed order whose memory follows from its list. Raises ValueError if that is above the shape's memory bound."""

    def __init__(self, shape: PipelineShape) -> None:
        super().__init__(shape)
        if shape.memory_bound is None:
            return
        chunks = shape.virtual_stages
        for stage in range(shape.stages):
            parts, bound = self.most_parts(stage), shape.most_in_flight(stage)
            if parts > bound * chunks:
                raise ValueError(
                    f"training.memory_bound: stage {stage} holds up to {parts / chunks:g} microbatches in this order, "
                    f"{parts} parts of 1/{chunks}, and may hold {bound}: give at least {-(-parts // chunks)}"
                )

    def most_parts(self, stage: int) -> int:
        """Return how many parts, each one microbatch in one chunk, ``stage`` holds at once at most."""
        last = self.kinds(stage)[-1]
        held = most = 0
        for action in self.order(stage):
            held += (action.kind is ActionKind.FORWARD) - (action.kind is last)
            most = max(most, held)
        return most


class InterleavedOneForwardOneBackward(ChunkedOrder):
    """Megatron's interleaved 1F1B: stage s of S has the virtual stages s, S + s, 2S + s and so on, V of them.

    Microbatches go through in groups of S: a stage runs the forwards of a group in its first chunk, then those of the
    same group in its second chunk, and so on; backwards likewise from its last chunk to its first. After
    ``2 (S - 1 - s) + (V - 1) S`` warm-up forwards come one forward and one backward in turn. Without latency the bubble
    is ``(S - 1)(f + b)/V``, where f and b are a whole stage's. A stage holds one part more than its warm-up has.

    Raises ValueError for one virtual stage, and if S does not divide the microbatches.
    Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021, section 2.2.
    """

    virtual_layout: ClassVar[VirtualLayout | None] = VirtualLayout.LOOPED

    def __init__(self, shape: PipelineShape) -> None:
        if shape.virtual_stages < 2:
            raise ValueError(
                "training.virtual_stages: interleaved-1f1b interleaves 2 virtual stages at least: give 2 or more, or "
                "schedule 1f1b"
            )
        if shape.microbatches % shape.stages:
            raise ValueError(
                f"training.microbatches: interleaved-1f1b runs them in groups of {shape.stages}, one for each stage, "
                f"and {shape.microbatches} are no multiple of it: give one"
            )
        super().__init__(shape)

    def warmup(self, stage: int) -> int:
        """Return how many forwards, of one chunk each, ``stage`` runs before it alternates."""
        stages, chunks = self.shape.stages, self.shape.virtual_stages
        return min(2 * (stages - 1 - stage) + (chunks - 1) * stages, chunks * self.shape.microbatches)

    def order(self, stage: int) -> Sequence[Action]:
        """Return the warm-up, then forwards and backwards in turn, then the remaining backwards."""
        chunks, parts = self.shape.virtual_stages, self.shape.virtual_stages * self.shape.microbatches
        warmup = self.warmup(stage)
        actions: list[Action] = []
        for step in range(parts + warmup):
            if step < parts:
                chunk, microbatch = self._part(step)
                actions.append(Action(ActionKind.FORWARD, microbatch, chunk))
            if step >= warmup:
                chunk, microbatch = self._part(step - warmup)
                actions += self.backward(stage, microbatch, chunks - 1 - chunk)
        return actions

    def _part(self, step: int) -> tuple[int, int]:
        """Return the chunk and the microbatch of a step: S microbatches in a chunk, then the same in the next one."""
        stages = self.shape.stages
        turn, within = divmod(step, stages)
        group, chunk = divmod(turn, self.shape.virtual_stages)
        return chunk, group * stages + within
