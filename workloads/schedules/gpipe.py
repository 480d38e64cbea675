"""GPipe: all forwards, then all backwards."""

from collections.abc import Sequence

from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape


class GPipe(FixedOrder):
    """Runs all forwards, then all backwards, microbatches in the same order both times.

    With one-way latency c and unlimited rate an iteration takes ``(M + S - 1)(f + b) + 2(S - 1)c``. Every stage holds
    all M microbatches at once. Raises ValueError if the shape's memory bound does not allow that.
    Source: Huang et al., "GPipe", NeurIPS 2019.
    """

    def __init__(self, shape: PipelineShape) -> None:
        super().__init__(shape)
        for stage in range(shape.stages):
            if shape.most_in_flight(stage) < shape.microbatches:
                raise ValueError(
                    f"memory_bound: GPipe holds all {shape.microbatches} microbatches at stage {stage}, "
                    f"which may hold {shape.most_in_flight(stage)}: take fewer microbatches or 1f1b"
                )

    def order(self, stage: int) -> Sequence[Action]:
        """Return all forwards, then all backwards."""
        microbatches = range(self.shape.microbatches)
        forwards = [known_action(ActionKind.FORWARD, microbatch) for microbatch in microbatches]
        return forwards + [action for microbatch in microbatches for action in self.backward(stage, microbatch)]
