"""ZB-H1: 1F1B with a split backward, so that the weight gradients fill the bubbles."""

from collections.abc import Sequence
from typing import ClassVar

from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.fixed_order import FixedOrder


class ZeroBubble(FixedOrder):
    """ZB-H1: ``S - s`` warm-up forwards at stage s, then input-gradient parts and forwards in turn.

    The weight-gradient part of a microbatch runs s input-gradient parts later, and the last ones run at the end. So the
    previous stage gets its gradient earlier by the time of one weight part. Every stage holds up to S microbatches,
    from the start of the forward to the end of the weight part, as many as the first stage of 1F1B. The shape's memory
    bound first shortens the delay of the weight parts, then the warm-up.
    Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.1.
    """

    splits_backward: ClassVar[bool] = True

    def warmup(self, stage: int) -> int:
        """Return how many forwards ``stage`` runs before its first backward, never more than the previous stage."""
        bounds = (self.shape.most_in_flight(before) for before in range(stage + 1))
        return min(self.shape.stages - stage, *bounds, self.shape.microbatches)

    def weight_delay(self, stage: int) -> int:
        """Return by how many microbatches the weight-gradient parts follow the input-gradient parts."""
        return min(stage, self.shape.most_in_flight(stage) - self.warmup(stage))

    def order(self, stage: int) -> Sequence[Action]:
        """Return the warm-up, then input parts, delayed weight parts and forwards in turn, then the rest."""
        microbatches, warmup, delay = self.shape.microbatches, self.warmup(stage), self.weight_delay(stage)
        actions = [known_action(ActionKind.FORWARD, microbatch) for microbatch in range(warmup)]
        for microbatch in range(microbatches):
            *until_input, weight = self.backward(stage, microbatch)
            actions += until_input
            if microbatch >= delay:
                actions.append(known_action(weight.kind, microbatch - delay))
            if microbatch + warmup < microbatches:
                actions.append(known_action(ActionKind.FORWARD, microbatch + warmup))
        late = range(microbatches - delay, microbatches)
        return [*actions, *(known_action(ActionKind.BACKWARD_WEIGHT, microbatch) for microbatch in late)]
