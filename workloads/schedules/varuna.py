"""Varuna's rule: whatever is ready, backwards first, with recomputes in the gaps."""

from typing import ClassVar

from workloads.schedules.action import Action, ActionKind
from workloads.schedules.schedule import Schedule


class Varuna(Schedule):
    """Opportunistic: a stage follows no list, and never idles while it has anything of use to do.

    In this order: a ready backward; the recompute of a microbatch whose gradient is there; a ready forward within the
    memory bound; else the recompute of the oldest microbatch that awaits its gradient, so that it has ended when the
    gradient comes. One microbatch at most is recomputed ahead, since its activations are held from then on. Among equal
    ones the oldest microbatch comes first. The last stage does not recompute.
    Source: Athlur et al., "Varuna: Scalable, Low-cost Training of Massive Deep Learning Models", EuroSys 2022. There
    recomputes are placed by predicted times; a schedule here sees no clock, so a gap decides.
    """

    last_stage_recomputes: ClassVar[bool] = False

    def choose(self, stage: int) -> Action | None:
        """The first ready action by the rule above."""
        recomputed = self.awaiting(stage, ActionKind.BACKWARD)
        to_recompute = self.awaiting(stage, ActionKind.RECOMPUTE)
        for kind, microbatches in ((ActionKind.BACKWARD, recomputed), (ActionKind.RECOMPUTE, to_recompute)):
            for microbatch in microbatches:
                if self.gradient_there(stage, microbatch):
                    return Action(kind, microbatch)
        for microbatch in self.awaiting(stage, ActionKind.FORWARD):
            if self.ready(stage, forward := Action(ActionKind.FORWARD, microbatch)):
                return forward
        if to_recompute and not recomputed:
            return Action(ActionKind.RECOMPUTE, to_recompute[0])
        return None
