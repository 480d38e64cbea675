"""Data parallelism: every replica holds the whole model, so that only gradients are sent between datacenters."""

from collections.abc import Sequence
from typing import ClassVar

from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape


class DataParallel(FixedOrder):
    """Runs the forward, then the backward of each microbatch in turn. A replica holds one microbatch at a time.

    Raises ValueError if the shape has more than one stage.
    """

    whole_replicas: ClassVar[bool] = True

    def __init__(self, shape: PipelineShape) -> None:
        super().__init__(shape)
        if shape.stages != 1:
            raise ValueError(
                f"stages: dp keeps the whole model in each replica, not in {shape.stages} stages: "
                "give it 1 stage (and as many pipelines as there are replicas)"
            )

    def order(self, stage: int) -> Sequence[Action]:
        """Return all actions, microbatch by microbatch."""
        actions: list[Action] = []
        for microbatch in range(self.shape.microbatches):
            actions += [known_action(ActionKind.FORWARD, microbatch), *self.backward(stage, microbatch)]
        return actions
