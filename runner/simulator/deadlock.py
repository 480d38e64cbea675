"""Report a simulation that deadlocks: no event is left, but not all ranks are done."""

from collections.abc import Iterable

from wanbed.ground.errors import SimulationError
from wanbed.runner.resolve.schedule_check import awaited
from wanbed.workloads.message import Message
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.schedule import Schedule


class DeadlockError(SimulationError):
    """Every stage waits. The message names one stage, the action that it waits for, and the last events."""


def event_text(time_ns: int, place: tuple[int, int], what: Action | Message) -> str:
    """Describe what happened at a time to a pipeline's stage, the two in ``place``."""
    pipeline, stage = place
    did = f"received the {what.kind} of microbatch {what.microbatch}" if isinstance(what, Message) else f"ended {what}"
    return f"{time_ns / 1e6:g} ms stage {stage} of pipeline {pipeline} {did}"


def deadlock(pipeline: int, stage: int, schedule: Schedule, last_events: Iterable[str]) -> DeadlockError:
    """Return the error for a schedule that gives ``stage`` no further action although its work is not complete."""
    events = "; ".join(last_events) or "none"
    return DeadlockError(
        f"{type(schedule).__name__} deadlocks: stage {stage} of pipeline {pipeline} waits for "
        f"{awaited(schedule, stage)}; last events: {events}"
    )
