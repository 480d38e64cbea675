"""Schedules as users write them, in plain Python: two that work, and those that fail in all the ways there are."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from wanbed.workloads.message import Message
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.schedules.varuna import Varuna


class Swapped(GPipe):
    """GPipe that runs its forwards from the last microbatch to the first at the first stage."""

    def order(self, stage: int) -> Sequence[Action]:
        actions = list(super().order(stage))
        forwards = self.shape.microbatches
        return [*actions[:forwards][::-1], *actions[forwards:]] if stage == 0 else actions


class OfNumpy(FixedOrder):
    """A list whose microbatches are numpy's integers."""

    def order(self, stage: int) -> Sequence[Action]:
        every = cast("Sequence[int]", np.arange(self.shape.microbatches))
        forwards = [Action(ActionKind.FORWARD, microbatch) for microbatch in every]
        return forwards + [Action(kind, microbatch) for microbatch in every for kind in self.kinds(stage)[1:]]


class Loose(GPipe):
    """GPipe whose methods return what only behaves like what they are to return."""

    splits_backward = True

    def kinds(self, stage: int) -> Any:
        return list(super().kinds(stage))

    def ready(self, stage: int, action: Action) -> Any:
        return [action] if super().ready(stage, action) else None

    def gradient_there(self, stage: int, microbatch: int, chunk: int = 0) -> Any:
        return "yes" if super().gradient_there(stage, microbatch, chunk) else ""

    def sends(self, stage: int, action: Action) -> Any:
        sent = super().sends(stage, action)
        return sent and list(sent)

    def finished(self, stage: int, action: Action) -> Any:
        super().finished(stage, action)
        return action


class ChoosesNothing(Schedule):
    """Has no policy at all."""


class Deadlocks(Varuna):
    def choose(self, stage: int) -> Action | None:
        return None if len(self.awaiting(stage, ActionKind.FORWARD)) < 3 else super().choose(stage)


class Raises(Varuna):
    def choose(self, stage: int) -> Action | None:
        if not self.awaiting(stage, ActionKind.FORWARD):
            raise RuntimeError("no forward is left")
        return super().choose(stage)


class ChoosesText(Varuna):
    def choose(self, stage: int) -> Any:
        return "forward"


class ChoosesAgain(Varuna):
    def choose(self, stage: int) -> Action | None:
        return Action(ActionKind.FORWARD, 0)


class SendsFar(Varuna):
    def sends(self, stage: int, action: Action) -> tuple[int, Message] | None:
        sent = super().sends(stage, action)
        return None if sent is None else (stage + 2, sent[1])


class TooLong(GPipe):
    def order(self, stage: int) -> Sequence[Action]:
        return [*super().order(stage), Action(ActionKind.FORWARD, 0)]


class ListsText(GPipe):
    def order(self, stage: int) -> Any:
        return ["forward"]
