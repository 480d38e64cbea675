"""Schedules whose stages follow a fixed list of actions."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar, Final

from wanbed.ground.errors import shown
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import TAKES_GRADIENT, Action, ActionKind, known_action
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError, in_whole_numbers, require_method

_FORWARD: Final = ActionKind.FORWARD
_RECOMPUTE: Final = ActionKind.RECOMPUTE
_ACTIVATION: Final = MessageKind.ACTIVATION
_GRADIENT: Final = MessageKind.GRADIENT


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
        order = self._orders.get(stage)
        if order is None:
            order = self._orders[stage] = self._whole_order(stage)
        if self._positions[stage] == len(order):
            return None
        action = order[self._positions[stage]]
        waits = action.kind is _RECOMPUTE and not self.recomputes_ahead
        if waits and not self.gradient_there(stage, action.microbatch, action.chunk):
            return None
        if not self.ready(stage, action):
            return None
        self._seen_ready = action
        return action

    def upcoming(self, stage: int) -> Action | None:
        """Return the next action of the stage's list, ready or not; None at its end."""
        order = self._orders.get(stage, ())
        return order[self._positions[stage]] if self._positions[stage] < len(order) else None

    def awaited(self, stage: int) -> tuple[int, Message] | None:
        """Return the message that the next action of the stage's list waits for, after the stage that sends it.

        Return None while an action is running, and if the next one needs no message, has it, or gets it from another
        virtual stage of this stage. Only ``next`` makes the list: it must have been called.
        """
        action = self.upcoming(stage)
        if action is None or self._running[stage] is not None or not self._exists(action):
            return None
        kind, microbatch, chunk = action.kind, action.microbatch, action.chunk
        number = self.virtual.number(stage, chunk)
        if kind is _FORWARD:
            if number == 0 or self._states[stage][chunk].activations[microbatch]:
                return None
            sender, needed = number - 1, _ACTIVATION
        elif kind in TAKES_GRADIENT or (kind is _RECOMPUTE and not self.recomputes_ahead):
            if self.gradient_there(stage, microbatch, chunk):
                return None
            sender, needed = number + 1, _GRADIENT
        else:
            return None
        from_stage = self.virtual.place(sender)[0]
        return None if from_stage == stage else (from_stage, Message(needed, microbatch, chunk))

    def _exists(self, action: Action) -> bool:
        return 0 <= action.microbatch < self.shape.microbatches and 0 <= action.chunk < self.shape.virtual_stages

    def _whole_order(self, stage: int) -> tuple[Action, ...]:
        """Return the list of ``stage``. Raise ScheduleError if it has more actions than there are, or anything else."""
        kinds, microbatches = self.kinds(stage), self.shape.microbatches
        most = len(kinds) * microbatches * self.shape.virtual_stages
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
        return tuple(in_whole_numbers(action) for action in order)

    def finished(self, stage: int, action: Action) -> None:
        """Record the end of ``action`` as ``Schedule.finished`` does, and advance in the list."""
        super().finished(stage, action)
        self._positions[stage] += 1

    def backward(self, stage: int, microbatch: int, chunk: int = 0) -> Iterator[Action]:
        """Yield all actions of ``microbatch`` in ``chunk`` after its forward, in order."""
        for kind in self.kinds(stage)[1:]:
            yield known_action(kind, microbatch, chunk)
