"""Fixed orders over virtual stages, which know how much memory they take."""

from abc import ABC

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape


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
