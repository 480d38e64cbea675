"""The interface between a schedule and the engine that runs it, and the state that all schedules keep.

The simulator holds one schedule object for all stages of a pipeline; a rank holds its own and uses it for its stage
only. Both report events to it (``arrived``, ``finished``) and call ``next`` whenever a GPU becomes idle or a message
arrives. A schedule has no clock: its decisions depend only on the order of events, so that the same events give the
same decisions on every engine. One object serves one iteration of one pipeline.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ground.class_path import create, load_subclass
from ground.own_code import OWN_FAULTS, described
from ground.shown_text import shown
from workloads.message import Message, MessageKind
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.pipeline_shape import PipelineShape

_TAKES_GRADIENT = (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT)
"""Actions that need the gradient from the next stage and compute the gradient for the previous stage."""


class ScheduleError(Exception):
    """Raised for an impossible event, or if a schedule chooses an impossible action."""


@dataclass(slots=True)
class _StageState:
    """The messages and actions of one stage so far. The sets hold microbatches."""

    messages: dict[MessageKind, set[int]] = field(default_factory=lambda: {kind: set() for kind in MessageKind})
    started: dict[ActionKind, set[int]] = field(default_factory=lambda: {kind: set() for kind in ActionKind})
    finished: dict[ActionKind, set[int]] = field(default_factory=lambda: {kind: set() for kind in ActionKind})
    running: Action | None = None


class Schedule(ABC):
    """Keeps track of what is ready at all stages. A subclass adds the policy in ``choose``.

    The constructor of a subclass takes the shape first and its own options as keyword arguments, and raises ValueError
    if they do not fit together.

    - ``splits_backward``: the gradients of the input and those of the weights are separate actions.
    - ``last_stage_recomputes``: False if the last stage keeps its activations instead of computing them again, because
      its backward can follow its forward at once.
    - ``whole_replicas``: each pipeline is a whole replica of the model, and the replicas are spread over the
      datacenters. False puts all replicas of a stage into one datacenter.
    """

    splits_backward: ClassVar[bool] = False
    last_stage_recomputes: ClassVar[bool] = True
    whole_replicas: ClassVar[bool] = False

    def __init__(self, shape: PipelineShape) -> None:
        self.shape = shape
        self._stages = tuple(_StageState() for _ in range(shape.stages))

    @abstractmethod
    def choose(self, stage: int) -> Action | None:
        """Return the ready action that the idle GPU of ``stage`` starts now; None to wait for a message."""

    def next(self, stage: int) -> Action | None:
        """Return the action to start now at ``stage``; None while one is running there, or to wait for a message.

        A returned action counts as started: the caller starts it at once and calls ``finished`` when it has ended.
        Raise ScheduleError if the policy chose an action that is not ready, or raised an error of its own.
        """
        state = self._stages[stage]
        if state.running is not None:
            return None
        try:
            action = self.choose(stage)
        except ScheduleError:
            raise
        except OWN_FAULTS as fault:
            raise ScheduleError(described(fault, type(self))) from fault
        if action is not None:
            if not isinstance(action, Action):
                raise ScheduleError(f"{type(self).__name__} chose {shown(action)} at stage {stage}, which is no Action")
            if not self.ready(stage, action):
                raise ScheduleError(f"{type(self).__name__} chose {action} at stage {stage}, which is not ready")
            state.started[action.kind].add(action.microbatch)
            state.running = action
        return action

    def arrived(self, stage: int, message: Message) -> None:
        """Record that all of ``message`` has arrived at ``stage``. Raise ScheduleError if it cannot, or came before."""
        sender = stage - 1 if message.kind is MessageKind.ACTIVATION else stage + 1
        if not (0 <= sender < self.shape.stages and 0 <= message.microbatch < self.shape.microbatches):
            raise ScheduleError(f"stage {stage} expects no {message.kind} of microbatch {message.microbatch}")
        have = self._stages[stage].messages[message.kind]
        if message.microbatch in have:
            raise ScheduleError(f"the {message.kind} of microbatch {message.microbatch} came to stage {stage} twice")
        have.add(message.microbatch)

    def finished(self, stage: int, action: Action) -> None:
        """Record that ``action`` has ended. Raise ScheduleError if it is not the one running at ``stage``."""
        state = self._stages[stage]
        if state.running != action:
            raise ScheduleError(f"stage {stage} finished {action}, which it was not running")
        state.finished[action.kind].add(action.microbatch)
        state.running = None

    def complete(self, stage: int) -> bool:
        """Return whether all actions of every microbatch have ended at ``stage``."""
        finished = self._stages[stage].finished
        return all(len(finished[kind]) == self.shape.microbatches for kind in self.kinds(stage))

    def sends(self, stage: int, action: Action) -> tuple[int, Message] | None:
        """Return the receiving stage and the message that ``stage`` sends after ``action``; None if there is none."""
        if action.kind is ActionKind.FORWARD and stage + 1 < self.shape.stages:
            return stage + 1, Message(MessageKind.ACTIVATION, action.microbatch)
        if action.kind in _TAKES_GRADIENT and stage > 0:
            return stage - 1, Message(MessageKind.GRADIENT, action.microbatch)
        return None

    def kinds(self, stage: int) -> tuple[ActionKind, ...]:
        """Return the kinds of each microbatch's actions at ``stage``, in order.

        A microbatch is in flight from the start of the first to the end of the last.
        """
        kinds = [ActionKind.FORWARD]
        if self.shape.recomputes(stage) and (self.last_stage_recomputes or stage < self.shape.stages - 1):
            kinds.append(ActionKind.RECOMPUTE)
        if self.splits_backward:
            return *kinds, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT
        return *kinds, ActionKind.BACKWARD

    def in_flight(self, stage: int) -> int:
        """Return how many microbatches are in flight at ``stage``."""
        state, kinds = self._stages[stage], self.kinds(stage)
        return len(state.started[kinds[0]]) - len(state.finished[kinds[-1]])

    def awaiting(self, stage: int, kind: ActionKind) -> list[int]:
        """Return the microbatches whose next action at ``stage`` is of that kind, oldest first.

        They may still wait for a message or for memory; see ``ready``. The list is empty if ``stage`` has no action of
        that kind.
        """
        state, kinds = self._stages[stage], self.kinds(stage)
        if kind not in kinds:
            return []
        before = kinds.index(kind) - 1
        reached = state.finished[kinds[before]] if before >= 0 else set(range(self.shape.microbatches))
        return sorted(reached - state.started[kind])

    def ready(self, stage: int, action: Action) -> bool:
        """Return whether ``action`` may start at ``stage``: not started, inputs available, memory bound kept."""
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
        """Return whether the gradient of ``microbatch`` has arrived. The last stage computes its own: always True."""
        return stage == self.shape.stages - 1 or microbatch in self._stages[stage].messages[MessageKind.GRADIENT]


def load_schedule(class_path: str) -> type[Schedule]:
    """Return the schedule class at ``"package.module:Class"``. Raise ValueError with the path and the fault."""
    return load_subclass(class_path, Schedule)


def create_schedule(class_path: str, shape: PipelineShape, options: Mapping[str, object]) -> Schedule:
    """Create a schedule for one iteration. Raise ValueError if the path, the options or the shape are not valid."""
    schedule: Schedule = create(class_path, Schedule, shape, **options)
    return schedule
