"""Varuna's policy: run any ready action, backwards first, and recompute in the gaps."""

from enum import Enum
from typing import ClassVar, Final

from wanbed.ground.errors import shown
from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule

_FORWARD: Final = ActionKind.FORWARD
_RECOMPUTE: Final = ActionKind.RECOMPUTE
_BACKWARD: Final = ActionKind.BACKWARD


class RecomputeRule(Enum):
    """The time to recompute a microbatch: in an idle gap before its gradient arrives, or only once it has arrived."""

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

    def __init__(self, shape: PipelineShape, *, recompute: object = "ahead") -> None:
        super().__init__(shape)
        known = [rule.value for rule in RecomputeRule]
        if recompute not in known:
            raise ValueError(f"recompute: {shown(recompute)} is no rule of varuna's options, take {' or '.join(known)}")
        self._recomputes_ahead = recompute == RecomputeRule.AHEAD.value

    def choose(self, stage: int) -> Action | None:
        """Return the first ready action in the order above."""
        recomputed = self._waiting(stage, _BACKWARD)
        to_recompute = self._waiting(stage, _RECOMPUTE)
        for microbatch in recomputed:
            if self.gradient_there(stage, microbatch):
                return known_action(_BACKWARD, microbatch)
        for microbatch in to_recompute:
            if self.gradient_there(stage, microbatch):
                return known_action(_RECOMPUTE, microbatch)
        for microbatch in self._waiting(stage, _FORWARD):
            if self.ready(stage, forward := known_action(_FORWARD, microbatch)):
                return forward
        if self._recomputes_ahead and to_recompute and not recomputed:
            return known_action(_RECOMPUTE, to_recompute[0])
        return None
