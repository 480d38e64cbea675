"""Varuna's policy: run any ready action, backwards first, and recompute in the gaps."""

from enum import Enum
from typing import ClassVar

from ground.shown_text import shown
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.schedule import Schedule


class RecomputeRule(Enum):
    """When to recompute a microbatch: in an idle gap before its gradient arrives, or only once it has arrived."""

    AHEAD = "ahead"
    ON_GRADIENT = "on-gradient"


class Varuna(Schedule):
    """Opportunistic: a stage follows no list, and is never idle while it has useful work.

    A stage runs the first of these that it can: a ready backward; the recompute of a microbatch whose gradient has
    arrived; a ready forward within the memory bound; the recompute of the oldest microbatch that waits for its
    gradient. At most one microbatch is recomputed ahead, because its activations are held from then on. Among equal
    actions the oldest microbatch goes first. The last stage does not recompute.

    ``recompute: on-gradient`` (default ``ahead``) never recomputes ahead, as in Varuna's own simulator: the GPU idles
    until the gradient has arrived. Raises ValueError for another rule.
    Source: Athlur et al., "Varuna: Scalable, Low-cost Training of Massive Deep Learning Models", EuroSys 2022. Varuna
    places recomputes by predicted times. A schedule here has no clock, so it recomputes in gaps.
    """

    last_stage_recomputes: ClassVar[bool] = False

    def __init__(self, shape: PipelineShape, *, recompute: object = RecomputeRule.AHEAD.value) -> None:
        super().__init__(shape)
        known = [rule.value for rule in RecomputeRule]
        if recompute not in known:
            raise ValueError(f"recompute: {shown(recompute)} is no rule of varuna's options, take {' or '.join(known)}")
        self._recomputes_ahead = recompute == RecomputeRule.AHEAD.value

    def choose(self, stage: int) -> Action | None:
        """Return the first ready action in the order above."""
        recomputed = self.awaiting(stage, ActionKind.BACKWARD)
        to_recompute = self.awaiting(stage, ActionKind.RECOMPUTE)
        for kind, microbatches in ((ActionKind.BACKWARD, recomputed), (ActionKind.RECOMPUTE, to_recompute)):
            for microbatch in microbatches:
                if self.gradient_there(stage, microbatch):
                    return Action(kind, microbatch)
        for microbatch in self.awaiting(stage, ActionKind.FORWARD):
            if self.ready(stage, forward := Action(ActionKind.FORWARD, microbatch)):
                return forward
        if self._recomputes_ahead and to_recompute and not recomputed:
            return Action(ActionKind.RECOMPUTE, to_recompute[0])
        return None
