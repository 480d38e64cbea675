"""Give the lists of actions of schedules whose order is fixed, for arithmetic beside the simulator."""

from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.registry import schedule_by_name


def stage_orders(name: str, stages: int, microbatches: int) -> list[tuple[Action, ...]]:
    """Return the actions of each stage, in the order of the schedule of that name."""
    schedule = schedule_by_name(name, PipelineShape(stages, microbatches))
    assert isinstance(schedule, FixedOrder)
    return [tuple(schedule.order(stage)) for stage in range(stages)]
