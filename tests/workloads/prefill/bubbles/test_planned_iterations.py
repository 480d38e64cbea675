import pytest
from hypothesis import HealthCheck, given, settings

from tests.workloads.schedules.planning.test_cell_planner import cells
from wanbed.workloads.prefill.bubbles.bubble_forecast import IterationPlan, PlannedAction
from wanbed.workloads.prefill.bubbles.planned_iterations import planned_iterations
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_planner import plan_cell

FORWARD, BACKWARD = Action(ActionKind.FORWARD, 0), Action(ActionKind.BACKWARD, 0)


def test_two_pipelines_take_turns_and_each_gpu_counts_from_its_own_first_action() -> None:
    cell = CellCosts(PipelineShape(2, 1), 2, (10, 10), (20, 20), (0, 0), (BoundaryCosts(5, 40, shared=True),))
    both = ((FORWARD, BACKWARD), (FORWARD, BACKWARD))
    planned = planned_iterations(CellPlan((both, both), (((1, 0), (0, 0)),), (((1, 0), (0, 0)),), 0, 0), cell, 7)
    forward, backward = ("forward", 0), ("backward", 0)
    # Pipeline 1's activation arrives at 55, pipeline 0's at 95; their gradients are made at 85 and 125.
    own = PlannedAction(forward, 0, 10), PlannedAction(backward, 10, 30)
    assert planned[1, 1] == IterationPlan(own, 170 + 20 + 7)
    assert planned[1, 0].actions == (PlannedAction(forward, 0, 10), PlannedAction(backward, 130, 150))
    assert planned[0, 0].actions == (PlannedAction(forward, 0, 10), PlannedAction(backward, 170, 190))


@given(cells(least_ns=1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_is_no_longer_than_was_planned_and_no_gpu_does_two_things_at_once(cell: CellCosts) -> None:
    plan = plan_cell(cell)
    for (pipeline, stage), iteration in planned_iterations(plan, cell, 0).items():
        keys = [(action.kind.value, action.microbatch) for action in plan.orders[pipeline][stage]]
        assert [action.key for action in iteration.actions] == keys
        assert iteration.period_ns <= plan.makespan_ns
        assert iteration.actions[0].start_ns == 0
        for before, after in zip(iteration.actions, iteration.actions[1:], strict=False):
            assert before.end_ns <= after.start_ns


def test_a_plan_that_waits_for_itself_is_refused() -> None:
    cell = CellCosts(PipelineShape(2, 1), 1, (1, 1), (1, 1), (0, 0), (BoundaryCosts(0, 0, shared=False),))
    with pytest.raises(ValueError, match="do not come to an end"):
        planned_iterations(CellPlan((((BACKWARD, FORWARD), (FORWARD, BACKWARD)),), ((),), ((),), 0, 0), cell, 0)


def test_the_bubble_after_a_send_that_blocks_begins_with_it() -> None:
    cell = CellCosts(
        PipelineShape(2, 2), 1, (10, 10), (20, 20), (0, 0), (BoundaryCosts(5, 40, shared=False),), sends_block=True
    )
    later = Action(ActionKind.FORWARD, 1), Action(ActionKind.BACKWARD, 1)
    orders = (FORWARD, later[0], BACKWARD, later[1])
    planned = planned_iterations(CellPlan(((orders, orders),), ((),), ((),), 0, 0), cell, 0)
    assert [action.start_ns for action in planned[0, 0].actions] == [0, 50, 180, 240]


def test_where_sends_block_a_gpu_goes_on_only_once_its_turn_on_a_shared_boundary_has_passed() -> None:
    boundary = BoundaryCosts(5, 40, shared=True)
    cell = CellCosts(PipelineShape(2, 2), 2, (10, 10), (20, 20), (0, 0), (boundary,), sends_block=True)
    order = (FORWARD, Action(ActionKind.FORWARD, 1), BACKWARD, Action(ActionKind.BACKWARD, 1))
    turns = ((1, 0), (0, 0), (1, 1), (0, 1))
    planned = planned_iterations(CellPlan(((order, order), (order, order)), (turns,), (turns,), 0, 0), cell, 0)
    # Both have made their first activation at 10; pipeline 1's leaves at 50, pipeline 0's after it at 90.
    assert planned[1, 0].actions[1] == PlannedAction(("forward", 1), 50, 60)
    assert planned[0, 0].actions[1] == PlannedAction(("forward", 1), 90, 100)
