"""A plan run strictly, iteration after iteration, over links that remember."""

from dataclasses import dataclass, replace

import pytest

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_planner import plan_cell
from wanbed.workloads.schedules.planning.plan_run import PlanRun, comes_to_an_end, priced

FORWARD, BACKWARD = Action(ActionKind.FORWARD, 0), Action(ActionKind.BACKWARD, 0)
ONE = CellPlan((((FORWARD, BACKWARD), (FORWARD, BACKWARD)),), ((),), ((),), 0, 0)


@dataclass(frozen=True)
class Cooling:
    """Links on which a transfer takes ``cold_ns`` after a pause of more than ``pause_ns``, and 10 else."""

    cold_ns: int
    pause_ns: int

    def opened(self) -> "CoolingState":
        return CoolingState(self)


class CoolingState:
    def __init__(self, links: Cooling) -> None:
        self.links, self.free_ns, self.used = links, 0, False

    def send(self, ready_ns: int) -> tuple[int, int]:
        cold = not self.used or ready_ns - self.free_ns > self.links.pause_ns
        self.free_ns, self.used = max(ready_ns, self.free_ns) + (self.links.cold_ns if cold else 10), True
        return self.free_ns, self.free_ns + 5


def cell(links: Cooling | None, between_ns: tuple[int, ...] = ()) -> CellCosts:
    return CellCosts(
        PipelineShape(2, 1), 1, (10, 10), (20, 20), (0, 0), (BoundaryCosts(5, 10, False, links),), between_ns
    )


def test_each_action_starts_when_its_message_is_there() -> None:
    assert PlanRun(ONE, cell(None)).iterate() == {(0, 0): ((0, 10), (70, 90)), (0, 1): ((25, 35), (35, 55))}
    assert priced(ONE, cell(None)).makespan_ns == 90


def test_links_keep_their_state_between_iterations() -> None:
    run = PlanRun(ONE, cell(Cooling(cold_ns=100, pause_ns=1000)))
    assert run.iterate()[0, 0][-1][1] == 90 + 2 * 90
    assert run.transfers_ns(0) == [105, 105]
    first, last = run.iterate()[0, 0]
    assert last[1] - first[0] == 90
    assert run.transfers_ns(0) == [15, 15]


def test_time_between_iterations_lets_links_cool() -> None:
    links = Cooling(cold_ns=100, pause_ns=1000)
    assert priced(ONE, cell(links)).makespan_ns == 90
    cooled = priced(ONE, cell(links, between_ns=(1000, 1000)))
    assert (cooled.makespan_ns, cooled.period_ns) == (90 + 2 * 90, 90 + 2 * 90 + 1000)


def test_a_deadlocking_order_is_refused() -> None:
    profile = CellCosts(PipelineShape(3, 1), 1, (1,) * 3, (1,) * 3, (0,) * 3, (BoundaryCosts(0, 0, False),) * 2)
    in_order, reversed_ = (FORWARD, BACKWARD), (BACKWARD, FORWARD)
    plan = CellPlan(((in_order, reversed_, in_order),), ((), ()), ((), ()), 0, 0)
    with pytest.raises(ValueError, match="do not come to an end"):
        PlanRun(plan, profile).iterate()


def test_slow_links_get_a_plan_for_slower_links() -> None:
    shape, times = PipelineShape(4, 8, recompute=True), (10,) * 4
    by_rate, slow = (
        CellCosts(shape, 1, times, (20,) * 4, times, (BoundaryCosts(5, 10, False, links),) * 3)
        for links in (None, Cooling(cold_ns=100, pause_ns=-1))
    )
    unknowing, knowing = plan_cell(by_rate), plan_cell(slow)
    assert knowing.orders != unknowing.orders
    assert knowing == priced(knowing, slow)
    assert knowing.period_ns < priced(unknowing, slow).period_ns


def test_a_stage_whose_send_blocks_acts_again_when_it_has_left() -> None:
    def each(kind: ActionKind) -> tuple[Action, ...]:
        return Action(kind, 0), Action(kind, 1)

    whole = (*each(ActionKind.FORWARD), *each(ActionKind.BACKWARD))
    plan = CellPlan(((whole, whole),), ((),), ((),), 0, 0)
    link = BoundaryCosts(5, 40, shared=False)
    costs = CellCosts(PipelineShape(2, 2), 1, (10, 10), (20, 20), (0, 0), (link,), sends_block=True)
    times = PlanRun(plan, costs).iterate()
    assert times[0, 0][:2] == ((0, 10), (50, 60))
    # The second activation is there at 105, the backward's gradient leaves at 175.
    assert times[0, 1] == ((55, 65), (105, 115), (115, 135), (175, 195))
    assert times[0, 0][2:] == ((180, 200), (240, 260))


def crossed_turns() -> CellPlan:
    """Stage 1 of pipeline 0 sends its gradient before its second activation, and that of pipeline 1 after it."""
    f0, b0, f1, b1 = (Action(kind, each) for each in (0, 1) for kind in (ActionKind.FORWARD, ActionKind.BACKWARD))
    outer, first, second = (f0, f1, b0, b1), (f0, b0, f1, b1), (f0, f1, b0, b1)
    activations = ((0, 0), (1, 0), (0, 1), (1, 1))
    gradients = ((1, 0), (0, 0), (0, 1), (1, 1))
    orders = ((outer, first, (f0, b0, f1, b1)), (outer, second, outer))
    return CellPlan(orders, (activations, activations), (gradients, activations), 0, 0)


def test_turns_that_cross_come_to_an_end_only_where_sends_do_not_block() -> None:
    shared = BoundaryCosts(5, 10, shared=True)
    costs = CellCosts(PipelineShape(3, 2), 2, (10,) * 3, (20,) * 3, (0,) * 3, (shared, shared))
    assert comes_to_an_end(crossed_turns(), costs)
    assert not comes_to_an_end(crossed_turns(), replace(costs, sends_block=True))
