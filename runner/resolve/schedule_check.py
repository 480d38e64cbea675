"""Check, while the file is read, that a schedule of another package comes to an end.

One pipeline runs one iteration, with actions and messages that take no time. The schedules of this package are not
checked: their tests do so.
"""

import json
import time
from collections.abc import Mapping
from functools import lru_cache

from wanbed.ground.own_code import OWN_FAULTS, EndlessCallError, check_options, described, time_limit
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from wanbed.workloads.schedules.planning.plan_run import comes_to_an_end
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError, create_schedule, load_schedule

CALL_LIMIT_S = 5.0
"""The time limit of one call of a schedule. Shipped ones take microseconds, and a rank calls during an iteration."""

PLAN_LIMIT_S = 120.0
"""The time limit of planning."""

_CHECK_S = 3.0
"""The time limit of the check of a large pipeline. The rest of the check is left to the engine."""


def check_schedule(class_path: str, shape: PipelineShape, options: Mapping[str, object]) -> None:
    """Raise ValueError, one line, for options that the class refuses and for a schedule that fails or deadlocks."""
    if _shipped(class_path):
        create_schedule(class_path, shape, options)
        return
    if (fault := _fault(class_path, shape, json.dumps(dict(options)))) is not None:
        raise ValueError(fault)


def planned(kind: type[PlannedSchedule], costs: CellCosts, options: Mapping[str, object]) -> CellPlan:
    """Return the plan of a planned schedule.

    Raise ValueError for options that it does not take, EndlessCallError if it takes too long, and what it raises.
    """
    check_options(kind.plan, 1, options)
    if _shipped(kind.__module__):
        return kind.plan(costs, **options)
    with time_limit(PLAN_LIMIT_S):
        plan = kind.plan(costs, **options)
    if costs.sends_block and not comes_to_an_end(plan, costs):
        raise ValueError(
            "its plan deadlocks where sends block: GPUs wait for turns of others that wait for theirs. Plan with "
            "CellCosts.sends_block in mind, or leave transport.overlap out"
        )
    return plan


def _shipped(module: str) -> bool:
    return module.startswith("wanbed.workloads.schedules.")


@lru_cache(maxsize=1024)
def _fault(class_path: str, shape: PipelineShape, options: str) -> str | None:
    """Return what is wrong, None if nothing is. Cached, since sweep points and variants share schedules."""
    kind = load_schedule(class_path)
    try:
        with time_limit(CALL_LIMIT_S):
            schedule = create_schedule(class_path, shape, json.loads(options))
        _run(schedule)
    except ValueError as refusal:
        return str(refusal)
    except ScheduleError as failure:
        return f"{class_path}: {failure}"
    except (*OWN_FAULTS, EndlessCallError) as fault:
        return f"{class_path}: {described(fault, kind)}"
    return None


def _run(schedule: Schedule) -> None:
    """Let every stage act whenever it can. Raise ScheduleError if one never can again before it is complete."""
    end_s = time.monotonic() + _CHECK_S
    stages = range(schedule.shape.stages)
    moved = True
    while moved:
        moved = False
        for stage in stages:
            if time.monotonic() > end_s:
                return
            with time_limit(CALL_LIMIT_S):
                action = schedule.next(stage)
            if action is None:
                continue
            moved = True
            schedule.finished(stage, action)
            if (sent := schedule.sends(stage, action)) is not None:
                schedule.arrived(*sent)
    stuck = [stage for stage in stages if not schedule.complete(stage)]
    if stuck:
        stage = next((each for each in stuck if _ready(schedule, each)), stuck[0])
        raise ScheduleError(f"deadlocks: stage {stage} waits for {awaited(schedule, stage)}")


def _ready(schedule: Schedule, stage: int) -> list[Action]:
    return [action for action in schedule.open_actions(stage) if schedule.ready(stage, action)]


def awaited(schedule: Schedule, stage: int) -> str:
    """Return the next action of a stage that is stuck, why it has not started, and what the stage's list has next."""
    awaited = [*_ready(schedule, stage), *schedule.open_actions(stage)]
    if not awaited:
        return "an end that it does not announce: all its actions are done"
    return f"the {awaited[0]}, {_reason(schedule, stage, awaited[0])}{_listed(schedule, stage, awaited[0])}"


def _reason(schedule: Schedule, stage: int, action: Action) -> str:
    if schedule.ready(stage, action):
        return "which is ready and not chosen"
    if action.kind is not ActionKind.FORWARD:
        return "whose gradient has not come"
    bound = schedule.shape.most_in_flight(stage)
    if schedule.in_flight(stage) >= bound * schedule.shape.virtual_stages:
        return f"where the memory bound of {bound} microbatches is reached"
    return "whose activation has not come"


def _listed(schedule: Schedule, stage: int, action: Action) -> str:
    if not isinstance(schedule, FixedOrder):
        return ""
    upcoming = schedule.upcoming(stage)
    if upcoming is None:
        return " (the stage's list has ended)"
    return "" if upcoming == action else f" (the stage's list has the {upcoming} next)"
