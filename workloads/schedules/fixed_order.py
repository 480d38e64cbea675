"""Schedules whose stages follow a fixed list of actions."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from wanbed.ground.compiled_core.own_subclasses import mypyc_attr
from wanbed.ground.errors import shown
from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError, in_whole_numbers, require_method

_RECOMPUTE: Final = ActionKind.RECOMPUTE


@mypyc_attr(allow_interpreted_subclasses=True)
class FixedOrder(Schedule):
    """Each stage runs the actions of its list in order, and waits while the next one is not ready.

    A recompute starts when the gradient of its microbatch has arrived, as with checkpointing inside the backward. With
    ``recomputes_ahead`` it starts when its turn in the list has come.
    """

    recomputes_ahead: ClassVar[bool] = False

    def __init__(self, shape: PipelineShape) -> None:
        require_method(type(self), FixedOrder, "order")
        super().__init__(shape)
        self._orders: dict[int, tuple[Action, ...]] = {}
        self._positions = [0] * shape.stages

    @abstractmethod
    def order(self, stage: int) -> Sequence[Action]:
        """Return all actions of ``stage`` in order."""

    def choose(self, stage: int) -> Action | None:
        """Return the next action of the list if it is ready, else None."""
        own: Any = self
        order = self._orders.get(stage)
        if order is None:
            order = self._orders[stage] = self._whole_order(stage)
        if self._positions[stage] == len(order):
            return None
        action = order[self._positions[stage]]
        waits = action.kind is _RECOMPUTE and not self.recomputes_ahead
        if waits and not own.gradient_there(stage, action.microbatch, action.chunk):
            return None
        if not own.ready(stage, action):
            return None
        self._seen_ready = action
        return action

    def upcoming(self, stage: int) -> Action | None:
        """Return the next action of the stage's list, ready or not; None at its end."""
        order = self._orders.get(stage, ())
        return order[self._positions[stage]] if self._positions[stage] < len(order) else None

    def _whole_order(self, stage: int) -> tuple[Action, ...]:
        """Return the list of ``stage``. Raise ScheduleError if it has more actions than there are, or anything else."""
        own: Any = self
        kinds, microbatches = own.kinds(stage), self.shape.microbatches
        most = len(kinds) * microbatches * self.shape.virtual_stages
        order = tuple(islice(own.order(stage), most + 1))
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
        return tuple(in_whole_numbers(action) for action in order)

    def finished(self, stage: int, action: Action) -> None:
        """Record the end of ``action`` as ``Schedule.finished`` does, and advance in the list."""
        super().finished(stage, action)
        self._positions[stage] += 1

    def backward(self, stage: int, microbatch: int, chunk: int = 0) -> Iterator[Action]:
        """Yield all actions of ``microbatch`` in ``chunk`` after its forward, in order."""
        own: Any = self
        for kind in own.kinds(stage)[1:]:
            yield known_action(kind, microbatch, chunk)
