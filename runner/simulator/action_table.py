"""Tables of the actions of schedules that follow fixed lists, made once for each shape and its options.

Such a schedule decides nothing while it runs: what each stage does next, the message that it needs for that and the
message that it sends afterwards stand in a table, which training walks through without asking. Pipelines with equal
options share a table. A schedule whose lists cannot be followed to their end, or that any other package has written,
has no table: it is asked.
"""

from collections.abc import Mapping
from typing import Any, Final

from wanbed.ground.own_code import OWN_FAULTS
from wanbed.runner.simulator.simulation import KIND_CODES
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import TAKES_GRADIENT, Action, ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape

_FORWARD: Final = ActionKind.FORWARD
_RECOMPUTE: Final = ActionKind.RECOMPUTE
_GRADIENT: Final = MessageKind.GRADIENT
_OWN_PACKAGE: Final = "wanbed.workloads.schedules."
_NUMBERS: Final = {kind: number for number, kind in enumerate(ActionKind)}
KINDS: Final = len(ActionKind)
NOTHING: Final = -1


class Shipping:
    """The message that an action sends, from one virtual stage to a neighbour.

    ``way`` is that of ``way_of`` at the sender, ``slot`` the place of the message among those that its receiver gets.
    """

    __slots__ = ("message", "microbatch", "receiver", "sender", "slot", "to_stage", "way")

    def __init__(self, message: Message, *, to_stage: int, sender: int, receiver: int, slot: int, way: int) -> None:
        self.message = message
        self.microbatch: int = message.microbatch
        self.to_stage = to_stage
        self.sender = sender
        self.receiver = receiver
        self.slot = slot
        self.way = way


class Step:
    """An action of a stage, and the one that follows.

    ``cost`` is its place among the durations of a rank: chunk by chunk, in the order of kinds. It ``needs`` the message
    of that slot, ``NOTHING`` for none. ``completes`` is whether it is the last to compute gradients of weights.
    """

    __slots__ = ("action", "chunk", "code", "completes", "cost", "following", "microbatch", "needs", "ships")

    def __init__(self, action: Action, needs: int, ships: Shipping | None, *, completes: bool) -> None:
        self.action = action
        self.code: int = KIND_CODES[action.kind.value]
        self.microbatch: int = action.microbatch
        self.chunk: int = action.chunk
        self.cost: int = self.chunk * KINDS + _NUMBERS[action.kind]
        self.needs = needs
        self.ships = ships
        self.completes = completes
        self.following: Step | None = None


class StageRun:
    """The progress of a stage of one pipeline through an iteration.

    ``step`` is the action that is running or that comes next, None at the end. ``there`` is 1 at the slots of messages
    that have arrived.
    """

    __slots__ = ("step", "there")

    def __init__(self, first: Step | None, slots: int) -> None:
        self.step = first
        self.there = bytearray(slots)


class ActionTable:
    """The actions of all stages of a pipeline. ``actions`` counts the kinds of actions of all stages."""

    __slots__ = ("actions", "firsts", "slots")

    def __init__(self, firsts: list[Step | None], slots: int, actions: int) -> None:
        self.firsts = firsts
        self.slots = slots
        self.actions = actions

    def run(self, stage: int) -> StageRun:
        """Return a stage before its first action."""
        return StageRun(self.firsts[stage], self.slots)

    def replay(self, schedule: Any, stage: int, run: StageRun) -> None:
        """Tell a new schedule of the same lists what has happened at a stage."""
        microbatches = schedule.shape.microbatches
        for slot in range(self.slots):
            if run.there[slot]:
                place, microbatch = divmod(slot, microbatches)
                chunk, is_gradient = divmod(place, 2)
                kind = _GRADIENT if is_gradient else MessageKind.ACTIVATION
                schedule.arrived(stage, Message(kind, microbatch, chunk))
        step = self.firsts[stage]
        while step is not None and step is not run.step:
            schedule.finished(stage, schedule.next(stage))
            step = step.following


def way_of(chunk: int, kind: MessageKind) -> int:
    """Return the number of the way on which a stage's chunk sends messages of a kind."""
    return 2 * chunk + (kind is _GRADIENT)


def action_table(kind: Any, shape: PipelineShape, options: Mapping[str, Any]) -> ActionTable | None:
    """Return the table of a schedule of class ``kind``, None if it has none."""
    if not kind.__module__.startswith(_OWN_PACKAGE) or not issubclass(kind, FixedOrder):
        return None
    try:
        schedule: Any = kind(shape, **options)
        orders = [list(schedule.order(stage)) for stage in range(shape.stages)]
    except OWN_FAULTS:
        # Whoever asks the schedule itself reports it.
        return None
    slots = 2 * shape.virtual_stages * shape.microbatches
    firsts: list[Step | None] = []
    for stage, order in enumerate(orders):
        if not _is_followed(schedule, stage, order):
            return None
        last_kind = schedule.kinds(stage)[-1]
        completing = max(position for position, action in enumerate(order) if action.kind is last_kind)
        first: Step | None = None
        last: Step | None = None
        for position, action in enumerate(order):
            step = _step(schedule, stage, action, completes=position == completing)
            if last is None:
                first = step
            else:
                last.following = step
            last = step
        firsts.append(first)
    return ActionTable(firsts, slots, sum(len(schedule.kinds(stage)) for stage in range(shape.stages)))


def _is_followed(schedule: Any, stage: int, order: list[Action]) -> bool:
    """Return whether a stage can do all of its work in that order, once what it needs is there."""
    shape, kinds = schedule.shape, schedule.kinds(stage)
    most = shape.most_in_flight(stage) * shape.virtual_stages
    done: dict[tuple[int, int], int] = {}
    in_flight = 0
    for action in order:
        microbatch, chunk = action.microbatch, action.chunk
        step = done.get((chunk, microbatch), 0)
        if not (0 <= microbatch < shape.microbatches and 0 <= chunk < shape.virtual_stages):
            return False
        if step == len(kinds) or action.kind is not kinds[step] or (step == 0 and in_flight >= most):
            return False
        done[chunk, microbatch] = step + 1
        in_flight += (step == 0) - (step + 1 == len(kinds))
    return len(order) == len(kinds) * int(shape.microbatches * shape.virtual_stages)


def _step(schedule: Any, stage: int, action: Action, *, completes: bool) -> Step:
    shape, virtual = schedule.shape, schedule.virtual
    number, chunk = virtual.number(stage, action.chunk), action.chunk
    needs = NOTHING
    waits = action.kind in TAKES_GRADIENT or (action.kind is _RECOMPUTE and not schedule.recomputes_ahead)
    if action.kind is _FORWARD and number > 0:
        needs = way_of(chunk, MessageKind.ACTIVATION) * shape.microbatches + action.microbatch
    elif waits and number < virtual.count - 1:
        needs = way_of(chunk, _GRADIENT) * shape.microbatches + action.microbatch
    ships: Shipping | None = None
    sent = schedule.sends(stage, action)
    if sent is not None:
        to_stage, message = sent
        slot = way_of(message.chunk, message.kind) * shape.microbatches + message.microbatch
        ships = Shipping(
            message,
            to_stage=to_stage,
            sender=number,
            receiver=virtual.number(to_stage, message.chunk),
            slot=slot,
            way=way_of(chunk, message.kind),
        )
    return Step(action, needs, ships, completes=completes)
