"""Varuna's rule: whatever is ready, backwards first, with recomputes in the gaps."""

from enum import Enum
from typing import ClassVar

from ground.shown_text import shown
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.schedule import Schedule


class RecomputeRule(Enum):
    """The rule for recomputing a microbatch: in an idle gap before its gradient comes, or never before."""

    AHEAD = "ahead"
    ON_GRADIENT = "on-gradient"


class Varuna(Schedule):
    """Opportunistic: a stage follows no list, and never idles while it has anything of use to do.

    In this order: a ready backward; the recompute of a microbatch whose gradient is there; a ready forward within the
    memory bound; else the recompute of the oldest microbatch that awaits its gradient, so that it has ended when the
    gradient comes. One microbatch at most is recomputed ahead, since its activations are held from then on. Among equal
    ones the oldest microbatch comes first. The last stage does not recompute.

    ``recompute: on-gradient`` (default ``ahead``) leaves out what is recomputed ahead, as Varuna's own simulator does:
    a GPU idles until the gradient is there, and recomputes then. Raises ValueError for another rule.
    Source: Athlur et al., "Varuna: Scalable, Low-cost Training of Massive Deep Learning Models", EuroSys 2022. There
    recomputes are placed by predicted times; a schedule here sees no clock, so a gap decides.
    """

    last_stage_recomputes: ClassVar[bool] = False

    def __init__(self, shape: PipelineShape, *, recompute: object = RecomputeRule.AHEAD.value) -> None:
        super().__init__(shape)
        known = [rule.value for rule in RecomputeRule]
        if recompute not in known:
            raise ValueError(f"recompute: {shown(recompute)} is no rule of varuna's options, take {' or '.join(known)}")
        self._recomputes_ahead = recompute == RecomputeRule.AHEAD.value

    def choose(self, stage: int) -> Action | None:
        """Return the first ready action by the rule above."""
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
