"""The interface between a schedule and the engine that runs it, and the state that all schedules keep.

The simulator holds one schedule object for all stages of a pipeline; a rank holds its own and uses it for its stage
only. Both report events to it (``arrived``, ``finished``) and call ``next`` whenever a GPU becomes idle or a message
arrives. A schedule has no clock: its decisions depend only on the order of events, so that the same events give the
same decisions on every engine. One object serves one iteration of one pipeline.
"""

from abc import abstractmethod
from bisect import insort
from collections.abc import Mapping
from functools import lru_cache
from operator import index
from typing import Any, ClassVar, Final

from wanbed.ground.class_path import create, load_subclass
from wanbed.ground.errors import shown
from wanbed.ground.own_code import OWN_FAULTS, described
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import TAKES_GRADIENT, Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualLayout, VirtualStages

_FORWARD: Final = ActionKind.FORWARD
_ACTIVATION: Final = MessageKind.ACTIVATION
_GRADIENT: Final = MessageKind.GRADIENT


class ScheduleError(Exception):
    """Raised for an impossible event, or if a schedule chooses an impossible action."""


_KNOWN_MESSAGES = 1 << 14
_message: Final = lru_cache(maxsize=_KNOWN_MESSAGES)(Message)


class _StageState:
    """The events so far at the virtual stage ``number``, by microbatch.

    A microbatch has two steps for each of its kinds of action: started and ended. ``steps`` counts those behind it.
    ``activations`` and ``gradients`` are 1 where the message has arrived. ``waiting`` has the microbatches whose next
    action is of each kind, sorted; it is None until somebody asks.
    """

    __slots__ = ("activations", "gradients", "number", "steps", "waiting")

    def __init__(self, number: int, microbatches: int) -> None:
        self.number = number
        self.steps = bytearray(microbatches)
        self.activations = bytearray(microbatches)
        self.gradients = bytearray(microbatches)
        self.waiting: list[list[int]] | None = None


class Schedule:
    """Keeps track of what is ready at all stages. A subclass adds the policy in ``choose``.

    The constructor of a subclass takes the shape first and its own options as keyword arguments, and raises ValueError
    if they do not fit together.

    - ``splits_backward``: the gradients of the input and those of the weights are separate actions. A plan may say
      otherwise of a stage, see ``splits_with``.
    - ``last_stage_recomputes``: False if the last stage keeps its activations instead of computing them again, because
      its backward can follow its forward at once.
    - ``whole_replicas``: each pipeline is a whole replica of the model, and the replicas are spread over the
      datacenters. False puts all replicas of a stage into one datacenter.
    - ``virtual_layout``: how the virtual stages are laid over the stages, None for a schedule that has none.

    A stage of a shape with V ``virtual_stages`` has V chunks, and computes one part of one microbatch at a time. With
    one, every chunk is 0.
    """

    splits_backward: ClassVar[bool] = False
    last_stage_recomputes: ClassVar[bool] = True
    whole_replicas: ClassVar[bool] = False
    virtual_layout: ClassVar[VirtualLayout | None] = None

    def __init__(self, shape: PipelineShape) -> None:
        require_method(type(self), Schedule, "choose")
        if shape.virtual_stages > 1 and self.virtual_layout is None:
            raise ValueError(f"virtual_stages: {type(self).__name__} has none: give 1, not {shape.virtual_stages}")
        self.shape = shape
        self.virtual = VirtualStages(shape.stages, shape.virtual_stages, self.virtual_layout or VirtualLayout.LOOPED)
        self._states = tuple(
            tuple(
                _StageState(self.virtual.number(stage, chunk), shape.microbatches)
                for chunk in range(shape.virtual_stages)
            )
            for stage in range(shape.stages)
        )
        self._microbatches = shape.microbatches
        self._chunks = shape.virtual_stages
        self._last_number = self.virtual.count - 1
        self._running: list[Action | None] = [None] * shape.stages
        self._seen_ready: Action | None = None
        self._in_flight = [0] * shape.stages
        self._most_in_flight = [shape.most_in_flight(stage) * shape.virtual_stages for stage in range(shape.stages)]
        self._complete = [0] * shape.stages
        self._kinds: list[dict[ActionKind, int]] = [{} for _ in range(shape.stages)]
        self._splits = [self.splits_backward] * shape.stages

    @classmethod
    def default_memory_bound(cls, stages: int) -> int | None:
        """Return how many microbatches a stage may hold at once if the file does not say; None for any number."""
        return None

    @classmethod
    def splits_with(cls, options: Mapping[str, Any]) -> bool | None:
        """Return whether backwards are split under these options; None if that is known only when a plan is made."""
        return cls.splits_backward

    @abstractmethod
    def choose(self, stage: int) -> Action | None:
        """Return the ready action that the idle GPU of ``stage`` starts now; None to wait for a message."""

    def next(self, stage: int) -> Action | None:
        """Return the action to start now at ``stage``; None while one is running there, or to wait for a message.

        A returned action counts as started: the caller starts it at once and calls ``finished`` when it has ended.
        Raise ScheduleError if the policy chose an action that is not ready, or raised an error of its own.
        """
        if self._running[stage] is not None:
            return None
        try:
            action: Action | None = self.choose(stage)
        except ScheduleError:
            raise
        except OWN_FAULTS as fault:
            raise ScheduleError(described(fault, type(self))) from fault
        seen_ready, self._seen_ready = self._seen_ready, None
        if action is not None and action is not seen_ready:
            if not isinstance(action, Action):
                raise ScheduleError(f"{type(self).__name__} chose {shown(action)} at stage {stage}, which is no Action")
            if not self.ready(stage, action):
                raise ScheduleError(f"{type(self).__name__} chose {action} at stage {stage}, which is not ready")
            action = in_whole_numbers(action)
        if action is not None:
            self._started(stage, action)
        return action

    def _started(self, stage: int, action: Action) -> None:
        state, microbatch = self._states[stage][action.chunk], action.microbatch
        step = state.steps[microbatch]
        state.steps[microbatch] = step + 1
        if not step:
            self._in_flight[stage] += 1
        if state.waiting is not None:
            state.waiting[step // 2].remove(microbatch)
        self._running[stage] = action

    def arrived(self, stage: int, message: Message) -> None:
        """Record that all of ``message`` has arrived at ``stage``. Raise ScheduleError if it cannot, or came before."""
        microbatch, chunk, activation = index(message.microbatch), index(message.chunk), message.kind is _ACTIVATION
        expected = 0 <= chunk < self._chunks and 0 <= microbatch < self._microbatches
        state = self._states[stage][chunk if expected else 0]
        if not expected or state.number == (0 if activation else self._last_number):
            raise ScheduleError(f"stage {stage} expects no {message.kind} of microbatch {microbatch}")
        have = state.activations if activation else state.gradients
        if have[microbatch]:
            raise ScheduleError(f"the {message.kind} of microbatch {microbatch} came to stage {stage} twice")
        have[microbatch] = 1

    def finished(self, stage: int, action: Action) -> None:
        """Record that ``action`` has ended. Raise ScheduleError if it is not the one running at ``stage``."""
        running = self._running[stage]
        if running is not action and running != action:
            raise ScheduleError(f"stage {stage} finished {action}, which it was not running")
        state, microbatch = self._states[stage][action.chunk], action.microbatch
        step = state.steps[microbatch] + 1
        state.steps[microbatch] = step
        if step == 2 * len(self._positions_of(stage)):
            self._in_flight[stage] -= 1
            self._complete[stage] += 1
        elif state.waiting is not None:
            insort(state.waiting[step // 2], microbatch)
        self._running[stage] = None

    def complete(self, stage: int) -> bool:
        """Return whether all actions of every microbatch have ended at ``stage``."""
        return self._complete[stage] == self._microbatches * self._chunks

    def completes_gradients(self, stage: int, action: Action) -> bool:
        """Return whether ``action``, which has not ended, is the last of ``stage`` to compute gradients of weights."""
        last = self.kinds(stage)[-1]
        return action.kind is last and self._complete[stage] == self._microbatches * self._chunks - 1

    def sends(self, stage: int, action: Action) -> tuple[int, Message] | None:
        """Return the receiving stage and the message that ``stage`` sends after ``action``; None if there is none.

        The message has the chunk that receives it. The receiving stage is ``stage`` itself where that also holds the
        virtual stage that follows: then the message is there at once.
        """
        sender, computed = self._states[stage][action.chunk].number, action.kind
        if computed is _FORWARD and sender < self._last_number:
            kind, receiver = _ACTIVATION, sender + 1
        elif computed in TAKES_GRADIENT and sender > 0:
            kind, receiver = _GRADIENT, sender - 1
        else:
            return None
        to_stage, chunk = (receiver, 0) if self._chunks == 1 else self.virtual.place(receiver)
        return to_stage, _message(kind, action.microbatch, chunk)

    def kinds(self, stage: int) -> tuple[ActionKind, ...]:
        """Return the kinds of each microbatch's actions at ``stage``, in order.

        A microbatch is in flight from the start of the first to the end of the last.
        """
        kinds = [ActionKind.FORWARD]
        if self.shape.recomputes(stage) and (self.last_stage_recomputes or stage < self.shape.stages - 1):
            kinds.append(ActionKind.RECOMPUTE)
        if self._splits[stage]:
            return *kinds, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT
        return *kinds, ActionKind.BACKWARD

    def in_flight(self, stage: int) -> int:
        """Return how many microbatches are in flight at ``stage``, each counted in every chunk that it is in."""
        return self._in_flight[stage]

    def awaiting(self, stage: int, kind: ActionKind, chunk: int = 0) -> list[int]:
        """Return the microbatches whose next action in that chunk of ``stage`` is of that kind, oldest first.

        They may still wait for a message or for memory; see ``ready``. The list is empty if ``stage`` has no action of
        that kind.
        """
        return self._waiting(stage, kind, chunk).copy()

    def _waiting(self, stage: int, kind: ActionKind, chunk: int = 0) -> list[int]:
        """Return the list of ``awaiting`` itself, which changes with every start and end. It is not to be changed."""
        positions, state = self._positions_of(stage), self._states[stage][chunk]
        position = positions.get(kind)
        if position is None:
            return []
        if state.waiting is None:
            state.waiting = [[] for _ in positions]
            for microbatch in range(self._microbatches):
                step = state.steps[microbatch]
                if step % 2 == 0 and step < 2 * len(positions):
                    state.waiting[step // 2].append(microbatch)
        return state.waiting[position]

    def _positions_of(self, stage: int) -> dict[ActionKind, int]:
        """Return the position of each kind in ``kinds``, which a subclass may define: asked for once."""
        positions = self._kinds[stage]
        if not positions:
            positions.update((kind, position) for position, kind in enumerate(self.kinds(stage)))
        return positions

    def open_actions(self, stage: int) -> list[Action]:
        """Return the next action of each microbatch that is not complete, those that end a microbatch first."""
        return [
            Action(kind, microbatch, chunk)
            for kind in self.kinds(stage)[::-1]
            for chunk in range(self.shape.virtual_stages)
            for microbatch in self.awaiting(stage, kind, chunk)
        ]

    def ready(self, stage: int, action: Action) -> bool:
        """Return whether ``action`` may start at ``stage``: not started, inputs available, memory bound kept."""
        kind, microbatch, chunk = action.kind, index(action.microbatch), index(action.chunk)
        position = self._positions_of(stage).get(kind)
        if position is None or not (0 <= chunk < self._chunks and 0 <= microbatch < self._microbatches):
            return False
        state = self._states[stage][chunk]
        if state.steps[microbatch] != 2 * position:
            return False
        if kind is _FORWARD:
            input_there = state.number == 0 or state.activations[microbatch]
            return bool(input_there) and self._in_flight[stage] < self._most_in_flight[stage]
        return kind not in TAKES_GRADIENT or bool(self.gradient_there(stage, microbatch, chunk))

    def gradient_there(self, stage: int, microbatch: int, chunk: int = 0) -> bool:
        """Return whether the gradient of ``microbatch`` has arrived for that chunk of ``stage``.

        The last virtual stage computes its own: always True.
        """
        state = self._states[stage][chunk]
        if state.number == self._last_number:
            return True
        return 0 <= microbatch < self._microbatches and state.gradients[microbatch] == 1


def in_whole_numbers(action: Action) -> Action:
    """Return the action with Python's own whole numbers. Those of numpy would do for sources, not for compiled code."""
    if type(action.microbatch) is int and type(action.chunk) is int:
        return action
    return Action(action.kind, int(index(action.microbatch)), int(index(action.chunk)))


def require_method(kind: type, base: type, name: str) -> None:
    """Raise TypeError if ``kind`` has a method from ``base`` alone, which only declares it.

    A class made by ``abc.ABCMeta`` would refuse that too, but is not one when compiled.
    """
    if next(each for each in kind.__mro__ if name in vars(each)) is base:
        raise TypeError(f"{kind.__name__} defines no {name}, which every {base.__name__} has to")


def load_schedule(class_path: str) -> type[Schedule]:
    """Return the schedule class at ``"package.module:Class"``. Raise ValueError with the path and the fault."""
    return load_subclass(class_path, Schedule)


def create_schedule(class_path: str, shape: PipelineShape, options: Mapping[str, object]) -> Schedule:
    """Create a schedule for one iteration. Raise ValueError if the path, the options or the shape are not valid."""
    schedule: Schedule = create(class_path, Schedule, shape, **options)
    return schedule
