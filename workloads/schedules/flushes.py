"""Several flushes of a pipeline in one iteration, whose gradients are added up before the optimizer steps."""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from wanbed.workloads.message import Message
from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError


class Flushes(Schedule):
    """Runs a schedule for each flush of an iteration. At every stage one begins when the one before has ended there.

    With M microbatches in a flush, microbatch m of the iteration is number ``m % M`` of flush ``m // M``. Where the
    shape sums every flush, a stage that has ended one of them starts nothing until ``begin_flush``.
    """

    def __init__(self, shape: PipelineShape, flushes: Sequence[Schedule]) -> None:
        # Without the constructor of Schedule: the flushes keep all that it would.
        self.shape = shape
        self.virtual = flushes[0].virtual
        self._flushes = list(flushes)
        self._microbatches = shape.microbatches
        self._of_flush = shape.flush.microbatches
        self._waits = shape.sums_flushes
        self._current = [0] * shape.stages
        self._begun = [True] * shape.stages

    def _flush(self, microbatch: int) -> Any:
        """Return the schedule of a microbatch's flush. Raise ScheduleError if there is no such microbatch."""
        if not 0 <= microbatch < self._microbatches:
            raise ScheduleError(f"there is no microbatch {microbatch}, of {self._microbatches}")
        return self._flushes[microbatch // self._of_flush]

    def _inside(self, action: Action) -> Action:
        """Return an action with its microbatch's number in its flush."""
        return known_action(action.kind, index(action.microbatch) % self._of_flush, index(action.chunk))

    def _running_flush(self, stage: int) -> Any:
        return self._flushes[self._current[stage]]

    def choose(self, stage: int) -> Action | None:
        """Return the action that the current flush chooses."""
        found: Action | None = self._running_flush(stage).choose(stage)
        return None if found is None else self._outside(stage, found)

    def _outside(self, stage: int, action: Action) -> Action:
        """Return an action of the stage's current flush with its microbatch's number in the iteration."""
        before = self._current[stage] * self._of_flush
        return known_action(action.kind, before + action.microbatch, action.chunk) if before else action

    def next(self, stage: int) -> Action | None:
        """Return the action to start now at ``stage``, as ``Schedule.next`` does."""
        if not self._begun[stage]:
            return None
        action: Action | None = self._running_flush(stage).next(stage)
        return None if action is None else self._outside(stage, action)

    def arrived(self, stage: int, message: Message) -> None:
        """Record that all of ``message`` has arrived at ``stage``, in its flush."""
        microbatch = index(message.microbatch)
        inside = Message(message.kind, microbatch % self._of_flush, message.chunk)
        self._flush(microbatch).arrived(stage, inside)

    def finished(self, stage: int, action: Action) -> None:
        """Record that ``action`` has ended. After the last one of a flush the next one begins, or waits for the sum."""
        flush = self._running_flush(stage)
        if index(action.microbatch) // self._of_flush != self._current[stage]:
            raise ScheduleError(f"stage {stage} finished {action}, which it was not running")
        flush.finished(stage, self._inside(action))
        if self._current[stage] + 1 < len(self._flushes) and flush.complete(stage):
            self._begun[stage] = not self._waits
            self._current[stage] += self._begun[stage]

    def ended_flush(self, stage: int) -> int | None:
        """Return the number of the flush that ``stage`` has ended and whose sum it waits for, None if there is none."""
        return None if self._begun[stage] else self._current[stage]

    def begin_flush(self, stage: int) -> None:
        """Let ``stage`` begin its next flush, once the gradients of the one before are summed."""
        self._begun[stage] = True
        self._current[stage] += 1

    def complete(self, stage: int) -> bool:
        """Return whether all actions of every flush have ended at ``stage``."""
        return self._current[stage] + 1 == len(self._flushes) and self._flushes[-1].complete(stage)

    def completes_gradients(self, stage: int, action: Action) -> bool:
        """Return whether ``action`` is the last of the iteration, at ``stage``, to compute gradients of weights."""
        last = self._current[stage] + 1 == len(self._flushes)
        return last and bool(self._running_flush(stage).completes_gradients(stage, self._inside(action)))

    def sends(self, stage: int, action: Action) -> tuple[int, Message] | None:
        """Return the receiving stage and the message that ``stage`` sends after ``action``; None if there is none."""
        microbatch = index(action.microbatch)
        sent = self._flush(microbatch).sends(stage, self._inside(action))
        if sent is None:
            return None
        to_stage, message = sent
        return to_stage, Message(message.kind, microbatch, message.chunk)

    def awaited(self, stage: int) -> tuple[int, Message] | None:
        """Return the message that the next action waits for, as ``FixedOrder.awaited`` of the current flush does."""
        if not self._begun[stage]:
            return None
        found = self._running_flush(stage).awaited(stage)
        if found is None:
            return None
        from_stage, message = found
        before = self._current[stage] * self._of_flush
        return from_stage, Message(message.kind, before + message.microbatch, message.chunk)

    def kinds(self, stage: int) -> tuple[ActionKind, ...]:
        """Return the kinds of each microbatch's actions at ``stage``, in order."""
        flush: Any = self._flushes[0]
        found: tuple[ActionKind, ...] = flush.kinds(stage)
        return found

    def in_flight(self, stage: int) -> int:
        """Return how many microbatches are in flight at ``stage``: those of the current flush."""
        return int(self._running_flush(stage).in_flight(stage))

    def awaiting(self, stage: int, kind: ActionKind, chunk: int = 0) -> list[int]:
        """Return the microbatches of the current flush whose next action is of that kind, oldest first."""
        before = self._current[stage] * self._of_flush
        return [before + each for each in self._running_flush(stage).awaiting(stage, kind, chunk)]

    def ready(self, stage: int, action: Action) -> bool:
        """Return whether ``action`` may start at ``stage``: one of the current flush that is ready there."""
        if not self._begun[stage] or index(action.microbatch) // self._of_flush != self._current[stage]:
            return False
        return bool(self._running_flush(stage).ready(stage, self._inside(action)))

    def gradient_there(self, stage: int, microbatch: int, chunk: int = 0) -> bool:
        """Return whether the gradient of ``microbatch`` has arrived for that chunk of ``stage``."""
        return bool(self._flush(microbatch).gradient_there(stage, microbatch % self._of_flush, chunk))


def iteration_schedule(shape: PipelineShape, make: Callable[[PipelineShape], Schedule]) -> Schedule:
    """Return the schedule of one iteration, of which ``make`` makes each flush. Raise what it raises."""
    if shape.flushes == 1:
        return make(shape)
    return Flushes(shape, [make(shape.flush) for _ in range(shape.flushes)])
