"""Report a simulation that deadlocks: no event is left, but not all ranks are done."""

from collections.abc import Iterable

from ground.wanbed_error import WanbedError
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.schedule import Schedule


class SimulationError(WanbedError):
    """A variant cannot be simulated to its end. The message is one line."""


class DeadlockError(SimulationError):
    """Every stage waits. The message names one stage, the action that it waits for, and the last events."""


def deadlock(pipeline: int, stage: int, schedule: Schedule, last_events: Iterable[str]) -> DeadlockError:
    """Return the error for a schedule that gives ``stage`` no further action although its work is not complete."""
    events = "; ".join(last_events) or "none"
    return DeadlockError(
        f"{type(schedule).__name__} deadlocks: stage {stage} of pipeline {pipeline} waits for "
        f"{_awaited(schedule, stage)}; last events: {events}"
    )


def _awaited(schedule: Schedule, stage: int) -> str:
    """Return the next action of ``stage``, with the reason why it has not started."""
    for kind in schedule.kinds(stage)[::-1]:
        for microbatch in schedule.awaiting(stage, kind):
            action = Action(kind, microbatch)
            if schedule.ready(stage, action):
                return f"the {action}, which is ready and not chosen"
            return f"the {action}, {_reason(schedule, stage, action)}"
    return "an end that it does not announce: all its actions are done"


def _reason(schedule: Schedule, stage: int, action: Action) -> str:
    if action.kind is not ActionKind.FORWARD:
        return "whose gradient has not come"
    bound = schedule.shape.most_in_flight(stage)
    if schedule.in_flight(stage) >= bound:
        return f"where the memory bound of {bound} microbatches is reached"
    return "whose activation has not come"
