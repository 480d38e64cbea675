"""Schedules whose stages follow a fixed list of actions."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

from ground.shown_text import shown
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.schedule import Schedule, ScheduleError


class FixedOrder(Schedule):
    """Each stage runs the actions of its list in order, and waits while the next one is not ready.

    A recompute starts when the gradient of its microbatch has arrived, as with checkpointing inside the backward. With
    ``recomputes_ahead`` it starts when its turn in the list has come.
    """

    recomputes_ahead: ClassVar[bool] = False

    def __init__(self, shape: PipelineShape) -> None:
        super().__init__(shape)
        self._orders: dict[int, tuple[Action, ...]] = {}
        self._positions = [0] * shape.stages

    @abstractmethod
    def order(self, stage: int) -> Sequence[Action]:
        """Return all actions of ``stage`` in order."""

    def choose(self, stage: int) -> Action | None:
        """Return the next action of the list if it is ready, else None."""
        order = self._orders.get(stage)
        if order is None:
            order = self._orders[stage] = self._whole_order(stage)
        if self._positions[stage] == len(order):
            return None
        action = order[self._positions[stage]]
        waits = action.kind is ActionKind.RECOMPUTE and not self.recomputes_ahead
        if waits and not self.gradient_there(stage, action.microbatch):
            return None
        return action if self.ready(stage, action) else None

    def upcoming(self, stage: int) -> Action | None:
        """Return the next action of the stage's list, ready or not; None at its end."""
        order = self._orders.get(stage, ())
        return order[self._positions[stage]] if self._positions[stage] < len(order) else None

    def _whole_order(self, stage: int) -> tuple[Action, ...]:
        """Return the list of ``stage``. Raise ScheduleError if it has more actions than there are, or anything else."""
        kinds, microbatches = self.kinds(stage), self.shape.microbatches
        most = len(kinds) * microbatches
        order = tuple(islice(self.order(stage), most + 1))
        if len(order) > most:
            raise ScheduleError(
                f"{type(self).__name__}.order({stage}) has more than {most} actions, {', '.join(kinds)} of each of "
                f"{microbatches} microbatches"
            )
        for position, action in enumerate(order):
            if not isinstance(action, Action):
                raise ScheduleError(
                    f"{type(self).__name__}.order({stage}) has {shown(action)} at position {position}, which is no "
                    "Action"
                )
        return order

    def finished(self, stage: int, action: Action) -> None:
        """Record the end of ``action`` as ``Schedule.finished`` does, and advance in the list."""
        super().finished(stage, action)
        self._positions[stage] += 1

    def backward(self, stage: int, microbatch: int) -> Iterator[Action]:
        """Yield all actions of ``microbatch`` after its forward, in order."""
        for kind in self.kinds(stage)[1:]:
            yield Action(kind, microbatch)
