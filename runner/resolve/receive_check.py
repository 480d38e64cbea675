"""Refuse what does not go with receives that block, and schedules that deadlock where sends block too."""

from collections.abc import Iterator, Mapping

from wanbed.ground.exclusions import Declared, Exclusion, as_check
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.message import Message
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule
from wanbed.workloads.schedules.schedule import Schedule

_BUFFERS = "give receive: buffers"


@as_check
def check_receive(written: WrittenVariant, schedule: type[Schedule] | None) -> Iterator[Declared]:
    """Raise InputError for what does not go with receives that block. ``schedule`` is None for torch's own."""
    transport, field, name = written.variant.transport, written.field, written.variant.schedule
    blocks = not transport.receives_into_buffers
    yield Exclusion(
        f"{field}.transport.receive",
        f"{name} chooses among the messages that have come, so that no receive can be posted before",
        "give a schedule of fixed order, such as gpipe or 1f1b",
        when=blocks and schedule is not None and not issubclass(schedule, FixedOrder),
    )
    yield Exclusion(
        f"{field}.transport.receive",
        f"{name} plans for messages that are sent as soon as they are made",
        "give a schedule that is not planned, such as gpipe or 1f1b",
        when=blocks and schedule is not None and issubclass(schedule, PlannedSchedule),
    )
    yield Exclusion(
        f"{field}.prefill",
        "a GPU that receives is not idle, and no bubble is left to fill",
        f"{_BUFFERS}, or prefill: none",
        when=blocks and written.is_prefilled,
        leave="",
    )


def check_rendezvous(schedule: Schedule, transport: TransportSpec) -> None:
    """Raise ValueError, one line, for a schedule whose GPUs wait for each other. It has begun nothing.

    That depends on its order alone, not on times. It can only happen where both sends and receives block.
    """
    if transport.receives_into_buffers or transport.overlap or not isinstance(schedule, FixedOrder):
        return
    sending: dict[int, tuple[int, Message]] = {}
    moved = True
    while moved:
        moved = False
        for stage in range(schedule.shape.stages):
            moved |= _moves(schedule, stage, sending)
    if sending:
        raise ValueError(
            f"it deadlocks where sends and receives block: {', '.join(_circle(schedule, sending))}: {_BUFFERS}, leave "
            "overlap out, or give gpipe"
        )


def _moves(schedule: FixedOrder, stage: int, sending: dict[int, tuple[int, Message]]) -> bool:
    """Let a stage end its send if its receiver is in the receive, or else compute. Return whether it did either."""
    if stage in sending:
        to_stage, message = sending[stage]
        if to_stage in sending or schedule.awaited(to_stage) != (stage, message):
            return False
        schedule.arrived(to_stage, message)
        del sending[stage]
        return True
    action = schedule.next(stage)
    if action is None:
        return False
    schedule.finished(stage, action)
    sends = schedule.sends(stage, action)
    if sends is not None and sends[0] == stage:
        schedule.arrived(*sends)
    elif sends is not None:
        sending[stage] = sends
    return True


def _circle(schedule: FixedOrder, sending: Mapping[int, tuple[int, Message]]) -> Iterator[str]:
    """Yield what each of some stages does that wait for each other in a circle."""
    waits: dict[int, str] = {}
    stage = next(iter(sending))
    while stage not in waits:
        awaited = schedule.awaited(stage)
        if stage in sending:
            other, message = sending[stage]
            waits[stage] = f"stage {stage} sends the {message.kind} of microbatch {message.microbatch} to stage {other}"
        elif awaited is not None:
            other, message = awaited
            waits[stage] = (
                f"stage {stage} receives the {message.kind} of microbatch {message.microbatch} from stage {other}"
            )
        else:
            raise AssertionError(f"stage {stage} waits for no other")
        stage = other
    before, circle = list(waits), list(waits.values())
    yield from circle[before.index(stage) :]
