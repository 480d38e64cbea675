"""Plans with split backwards where links have a state: bursts that close windows are no gain."""

from dataclasses import replace

from tests.support.workloads.restarting_links import Restarting
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.plan_run import priced
from wanbed.workloads.schedules.planning.shortened_planner import plan_shortened_cell


def cell(links: Restarting | None, memory_bound: int | None = None) -> CellCosts:
    """Four stages of equal parts with 12 microbatches."""
    return CellCosts(
        PipelineShape(4, 12, memory_bound=memory_bound),
        1,
        (50,) * 4,
        (100,) * 4,
        (0,) * 4,
        (BoundaryCosts(100, 10, shared=False, links=links),) * 3,
    )


def test_a_plan_with_much_memory_is_no_longer_than_one_that_may_hold_less() -> None:
    links = Restarting(pause_ns=120, again_ns=400)
    periods_ns = [plan_shortened_cell(cell(links, held)).period_ns for held in (None, 8, 6, 4)]
    assert periods_ns[0] <= min(periods_ns) * 1.02


def test_a_plan_knows_of_pauses() -> None:
    links = Restarting(pause_ns=120, again_ns=400)
    by_rate = plan_shortened_cell(cell(None))
    assert plan_shortened_cell(cell(links)).period_ns < priced(by_rate, cell(links)).period_ns


def test_no_stage_holds_more_than_its_own_bound() -> None:
    shape = PipelineShape(4, 12, memory_bound=(3, 12, 5, 2))
    plan = plan_shortened_cell(replace(cell(Restarting(120, 400)), shape=shape))
    for stage, bound in enumerate((3, 12, 5, 2)):
        held = 0
        for action in plan.orders[0][stage]:
            held += {"forward": 1, "backward_weight": -1}.get(action.kind, 0)
            assert held <= bound
