"""The order of a model whose layers are on the device group by group."""

from collections.abc import Sequence
from typing import ClassVar

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualLayout


class GroupByGroup(FixedOrder):
    """All microbatches pass one group after the other: forwards from the first to the last, backwards the way back.

    Each group is a virtual stage of the one stage. Raises ValueError for several stages.
    """

    virtual_layout: ClassVar[VirtualLayout | None] = VirtualLayout.LOOPED

    def __init__(self, shape: PipelineShape) -> None:
        if shape.stages != 1:
            raise ValueError(f"stages: {shape.stages}, and groups pass through a single one")
        super().__init__(shape)

    def order(self, stage: int) -> Sequence[Action]:
        """Return the forwards of each group, then its backwards from the last group on."""
        groups, microbatches = range(self.shape.virtual_stages), range(self.shape.microbatches)
        forwards = [Action(ActionKind.FORWARD, microbatch, group) for group in groups for microbatch in microbatches]
        backwards = [
            action
            for group in reversed(groups)
            for microbatch in microbatches
            for action in self.backward(stage, microbatch, group)
        ]
        return forwards + backwards


def group_by_group(groups: int, microbatches: int) -> GroupByGroup:
    """Return the schedule of one iteration of a model whose groups compute their forwards again before backwards."""
    return GroupByGroup(PipelineShape(1, microbatches, recompute=True, virtual_stages=groups))
