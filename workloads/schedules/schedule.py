"""The interface between a schedule and whatever runs it, and the bookkeeping that all schedules share.

A simulator holds one schedule object and asks it for every stage; a rank holds its own and asks for its stage alone.
Both report events to it (``arrived``, ``finished``) and ask ``next`` whenever a GPU falls idle or a message
arrives. A schedule sees no clock: its decisions depend on the order of events only, so that the same events give the
same decisions on every engine. One object serves one iteration of one pipeline.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from workloads.message import Message, MessageKind
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.pipeline_shape import PipelineShape

_TAKES_GRADIENT = (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT)
"""What waits for the gradient of the next stage and, ended, has made the one for the stage before."""


class ScheduleError(Exception):
    """Raised for an event that cannot be, or a choice of a schedule that cannot be."""


@dataclass(slots=True)
class _StageState:
    """The messages and actions of one stage so far; sets hold microbatches."""

    messages: dict[MessageKind, set[int]] = field(default_factory=lambda: {kind: set() for kind in MessageKind})
    started: dict[ActionKind, set[int]] = field(default_factory=lambda: {kind: set() for kind in ActionKind})
    finished: dict[ActionKind, set[int]] = field(default_factory=lambda: {kind: set() for kind in ActionKind})
    running: Action | None = None


class Schedule(ABC):
    """Keeps the readiness of all stages; a subclass adds the policy, in ``choose``.

    A subclass takes the shape first and its own options as keyword arguments, and raises ValueError where the two do
    not fit together. ``splits_backward``: a microbatch's gradient of the input and those of the weights are actions of
    their own. ``last_stage_recomputes``: False where the last stage, whose backward can follow its forward at once,
    keeps its activations in place of computing them again. ``whole_replicas``: each pipeline is one whole replica of
    the model, and replicas are to be spread over the datacenters; False puts all replicas of a stage into one.
    """

    splits_backward: ClassVar[bool] = False
    last_stage_recomputes: ClassVar[bool] = True
    whole_replicas: ClassVar[bool] = False

    def __init__(self, shape: PipelineShape) -> None:
        self.shape = shape
        self._stages = tuple(_StageState() for _ in range(shape.stages))

    @abstractmethod
    def choose(self, stage: int) -> Action | None:
        """Return the action that the idle GPU of ``stage`` shall start, a ready one; None to wait for a message."""

    def next(self, stage: int) -> Action | None:
        """Return the action to start now at ``stage``; None while one is running there, or if none shall start yet.

        An action returned counts as started: the caller starts it at once, and calls ``finished`` when it has ended.
        Raises ScheduleError if the policy chose an action that is not ready.
        """
        state = self._stages[stage]
        if state.running is not None:
            return None
        action = self.choose(stage)
        if action is not None:
            if not self.ready(stage, action):
                raise ScheduleError(f"{type(self).__name__} chose {action} at stage {stage}, which is not ready")
            state.started[action.kind].add(action.microbatch)
            state.running = action
        return action

    def arrived(self, stage: int, message: Message) -> None:
        """Record that ``message`` is whole at ``stage``. Raises ScheduleError if it was there or belongs elsewhere."""
        sender = stage - 1 if message.kind is MessageKind.ACTIVATION else stage + 1
        if not (0 <= sender < self.shape.stages and 0 <= message.microbatch < self.shape.microbatches):
            raise ScheduleError(f"stage {stage} expects no {message.kind} of microbatch {message.microbatch}")
        have = self._stages[stage].messages[message.kind]
        if message.microbatch in have:
            raise ScheduleError(f"the {message.kind} of microbatch {message.microbatch} came to stage {stage} twice")
        have.add(message.microbatch)

    def finished(self, stage: int, action: Action) -> None:
        """Record that ``action`` has ended. Raises ScheduleError if it is not the one running at ``stage``."""
        state = self._stages[stage]
        if state.running != action:
            raise ScheduleError(f"stage {stage} finished {action}, which it was not running")
        state.finished[action.kind].add(action.microbatch)
        state.running = None

    def complete(self, stage: int) -> bool:
        """Return whether every microbatch has gone through all its actions at ``stage``."""
        finished = self._stages[stage].finished
        return all(len(finished[kind]) == self.shape.microbatches for kind in self.kinds(stage))

    def sends(self, stage: int, action: Action) -> tuple[int, Message] | None:
        """Return what ``stage`` sends once ``action`` has ended, and to which stage; None if it sends nothing."""
        if action.kind is ActionKind.FORWARD and stage + 1 < self.shape.stages:
            return stage + 1, Message(MessageKind.ACTIVATION, action.microbatch)
        if action.kind in _TAKES_GRADIENT and stage > 0:
            return stage - 1, Message(MessageKind.GRADIENT, action.microbatch)
        return None

    def kinds(self, stage: int) -> tuple[ActionKind, ...]:
        """Return each microbatch's actions at ``stage``, in order; it is in flight from the first to the last."""
        kinds = [ActionKind.FORWARD]
        if self.shape.recomputes(stage) and (self.last_stage_recomputes or stage < self.shape.stages - 1):
            kinds.append(ActionKind.RECOMPUTE)
        if self.splits_backward:
            return *kinds, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT
        return *kinds, ActionKind.BACKWARD

    def in_flight(self, stage: int) -> int:
        """Return how many microbatches ``stage`` holds."""
        state, kinds = self._stages[stage], self.kinds(stage)
        return len(state.started[kinds[0]]) - len(state.finished[kinds[-1]])

    def awaiting(self, stage: int, kind: ActionKind) -> list[int]:
        """Return the microbatches that have gone through all before ``kind`` at ``stage`` and not started it.

        They come oldest first. They may still wait for a message or for memory: ask ``ready``. Empty where ``stage``
        has no such kind.
        """
        state, kinds = self._stages[stage], self.kinds(stage)
        if kind not in kinds:
            return []
        before = kinds.index(kind) - 1
        reached = state.finished[kinds[before]] if before >= 0 else set(range(self.shape.microbatches))
        return sorted(reached - state.started[kind])

    def ready(self, stage: int, action: Action) -> bool:
        """Return whether ``action`` may start at ``stage``: not started, its inputs there, the memory bound kept."""
        state, kinds, microbatch = self._stages[stage], self.kinds(stage), action.microbatch
        if action.kind not in kinds or microbatch in state.started[action.kind]:
            return False
        before = kinds.index(action.kind) - 1
        if before >= 0 and microbatch not in state.finished[kinds[before]]:
            return False
        if action.kind is ActionKind.FORWARD:
            input_there = stage == 0 or microbatch in state.messages[MessageKind.ACTIVATION]
            return (
                input_there
                and 0 <= microbatch < self.shape.microbatches
                and self.in_flight(stage) < self.shape.most_in_flight(stage)
            )
        return action.kind not in _TAKES_GRADIENT or self.gradient_there(stage, microbatch)

    def gradient_there(self, stage: int, microbatch: int) -> bool:
        """Return whether the backward of ``microbatch`` waits for no message. The last stage makes its own gradient."""
        return stage == self.shape.stages - 1 or microbatch in self._stages[stage].messages[MessageKind.GRADIENT]
