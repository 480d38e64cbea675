"""Schedules whose stages each follow a list."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from workloads.schedules.action import Action, ActionKind
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.schedule import Schedule


class FixedOrder(Schedule):
    """Each stage takes its actions from a list made ahead, and waits whenever the next of them is not ready.

    A recompute starts when the gradient of its microbatch is there, as where checkpointing is done inside the backward;
    with ``recomputes_ahead``, when its turn in the list has come.
    """

    recomputes_ahead: ClassVar[bool] = False

    def __init__(self, shape: PipelineShape) -> None:
        super().__init__(shape)
        self._orders: dict[int, tuple[Action, ...]] = {}
        self._positions = [0] * shape.stages

    @abstractmethod
    def order(self, stage: int) -> Sequence[Action]:
        """Return every action of ``stage``, first to last."""

    def choose(self, stage: int) -> Action | None:
        """Return the next action of the list, once it is ready."""
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
        """Do as ``Schedule.finished`` does, and move on in the list."""
        super().finished(stage, action)
        self._positions[stage] += 1

    def backward(self, stage: int, microbatch: int) -> Iterator[Action]:
        """Yield all that follows the forward of ``microbatch``, in order."""
        for kind in self.kinds(stage)[1:]:
            yield Action(kind, microbatch)
