"""Schedules whose stages follow a fixed list of actions."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from workloads.schedules.action import Action, ActionKind
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.schedule import Schedule


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
            order = self._orders[stage] = tuple(self.order(stage))
        if self._positions[stage] == len(order):
            return None
        action = order[self._positions[stage]]
        waits = action.kind is ActionKind.RECOMPUTE and not self.recomputes_ahead
        if waits and not self.gradient_there(stage, action.microbatch):
            return None
        return action if self.ready(stage, action) else None

    def finished(self, stage: int, action: Action) -> None:
        """Record the end of ``action`` as ``Schedule.finished`` does, and advance in the list."""
        super().finished(stage, action)
        self._positions[stage] += 1

    def backward(self, stage: int, microbatch: int) -> Iterator[Action]:
        """Yield all actions of ``microbatch`` after its forward, in order."""
        for kind in self.kinds(stage)[1:]:
            yield Action(kind, microbatch)
