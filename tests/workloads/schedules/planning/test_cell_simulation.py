"""Each rule of the planner on a cell small enough to follow by hand."""

import pytest

from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_simulation import CellSimulation, PlanRules, TurnRule


def first_actions(plan: CellPlan, count: int) -> str:
    return " ".join(f"{action.kind[0].upper()}{action.microbatch}" for action in plan.orders[0][0][:count])


# The first gradient is known from 25 on to come at 50, so that its recompute should start at 40.
@pytest.mark.parametrize(
    ("patience", "order"), [(0, "F0 F1 F2 F3 R0 B0"), (1, "F0 F1 F2 F3 R0 B0"), (None, "F0 F1 F2 F3 F4 R0 B0")]
)
def test_less_patience_runs_recomputes_before_forwards_sooner(patience: int | None, order: str) -> None:
    cell = CellCosts(
        PipelineShape(2, 8, recompute=True), 1, (10, 10), (20, 20), (10, 10), (BoundaryCosts(5, 0, shared=False),)
    )
    plan = CellSimulation(cell, PlanRules(TurnRule.FIRST_COME, patience)).run()
    assert first_actions(plan, len(order.split())) == order


@pytest.mark.parametrize("rule", TurnRule)
def test_pipelines_that_compute_alike_take_turns_by_any_rule(rule: TurnRule) -> None:
    cell = CellCosts(PipelineShape(2, 3), 2, (10, 10), (20, 20), (0, 0), (BoundaryCosts(5, 100, shared=True),))
    turns = ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2))
    assert CellSimulation(cell, PlanRules(rule, None)).run().activation_turns == (turns,)


def test_a_link_is_never_idle_while_a_transfer_waits() -> None:
    cell = CellCosts(PipelineShape(2, 3), 2, (10, 0), (0, 0), (0, 0), (BoundaryCosts(5, 100, shared=True),))
    # Six activations one after the other; the last gradient follows the last of them.
    assert CellSimulation(cell, PlanRules(TurnRule.STARVING, None)).run().makespan_ns == 10 + 6 * 100 + 5 + 100 + 5
