"""1F1B: a warm-up of forwards, then one backward and one forward in turn."""

from collections.abc import Sequence

from wanbed.ground.errors import shown
from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape


class OneForwardOneBackward(FixedOrder):
    """1F1B, non-interleaved, with ``S - s`` warm-up forwards at stage s.

    ``warmup_depth`` is the number of warm-up forwards at stage 0 (default S). Stage s runs s fewer, at least one. The
    last stage always runs one, since its backwards wait for no message. The shape's memory bound shortens the warm-up.
    Stage s holds no more microbatches than its warm-up has. Raises ValueError for a depth below 1.
    Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021.
    """

    def __init__(self, shape: PipelineShape, *, warmup_depth: object = None) -> None:
        super().__init__(shape)
        depth = self._default_depth() if warmup_depth is None else warmup_depth
        if isinstance(depth, bool) or not isinstance(depth, int):
            raise ValueError(f"warmup_depth: {shown(depth)} is not a whole number of microbatches")
        if depth < 1:
            raise ValueError(f"warmup_depth: {shown(depth)} is below 1")
        self._warmup_depth = depth

    def _default_depth(self) -> int:
        return self.shape.stages

    def _unbounded_warmup(self, stage: int) -> int:
        return 1 if stage == self.shape.stages - 1 else max(1, self._warmup_depth - stage)

    def warmup(self, stage: int) -> int:
        """Return how many forwards ``stage`` runs before its first backward.

        It is never more than at the previous stage. Otherwise the previous stage would wait for a gradient while this
        one waits for an activation.
        """
        own = self._unbounded_warmup(stage)
        return min(own, *(self.shape.most_in_flight(before) for before in range(stage + 1)), self.shape.microbatches)

    def order(self, stage: int) -> Sequence[Action]:
        """Return the warm-up, then backwards and forwards in turn, then the remaining backwards."""
        warmup = self.warmup(stage)
        actions = [known_action(ActionKind.FORWARD, microbatch) for microbatch in range(warmup)]
        for microbatch in range(self.shape.microbatches):
            actions += self.backward(stage, microbatch)
            if microbatch + warmup < self.shape.microbatches:
                actions.append(known_action(ActionKind.FORWARD, microbatch + warmup))
        return actions
