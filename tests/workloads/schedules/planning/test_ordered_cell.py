"""The run of given orders and turns: the times that ranks take which follow them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.ordered_cell import CellOrders, CellRun, OrderedCell
from wanbed.workloads.schedules.planning.plan_run import PlanRun, priced
from wanbed.workloads.schedules.planning.split_planner import RULES, SplitRules, SplitSimulation

FORWARD, INPUT, WEIGHT = ActionKind.FORWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT


def run_of(costs: CellCosts, *orders: tuple[ActionKind, ...]) -> CellRun:
    cell = OrderedCell(costs)
    run = cell.run(cell.alike(orders))
    assert run is not None
    return run


def path_of(costs: CellCosts, *orders: tuple[ActionKind, ...]) -> set[tuple[int, int]]:
    cell = OrderedCell(costs)
    return set(cell.critical_path(cell.alike(orders)))


def test_a_stage_alone_takes_its_actions_and_the_time_between_iterations() -> None:
    costs = CellCosts(
        PipelineShape(1, 1), 1, (30,), (50,), (0,), (), (9,), backward_input_ns=(20,), backward_weight_ns=(7,)
    )
    run = run_of(costs, (FORWARD, INPUT, WEIGHT))
    assert (run.period_ns, run.makespan_ns) == (66, 57)


def test_the_longest_part_is_the_period_and_the_way_to_a_stage_is_no_part_of_its_own() -> None:
    costs = CellCosts(
        PipelineShape(2, 1),
        1,
        (30, 500),
        (27, 27),
        (0, 0),
        (BoundaryCosts(100, 0, False),),
        backward_input_ns=(20, 20),
        backward_weight_ns=(7, 900),
    )
    orders = ((FORWARD, INPUT, WEIGHT),) * 2
    run = run_of(costs, *orders)
    # Stage 1 begins when its activation comes, 130 ns after stage 0.
    assert (run.period_ns, run.makespan_ns) == (500 + 20 + 900, 130 + 500 + 20 + 900)
    assert {(1, position) for position in range(3)} <= path_of(costs, *orders)


def test_stages_that_wait_for_each_other_are_on_one_path() -> None:
    costs = CellCosts(PipelineShape(2, 1), 1, (30, 30), (20, 20), (0, 0), (BoundaryCosts(100, 0, False),))
    orders = ((FORWARD, INPUT, WEIGHT),) * 2
    assert run_of(costs, *orders).period_ns == 30 + 100 + 30 + 10 + 100 + 10 + 10
    assert {stage for stage, _ in path_of(costs, *orders)} >= {0, 1}


def test_orders_that_wait_for_each_other_have_no_run() -> None:
    cell = OrderedCell(CellCosts(PipelineShape(2, 2), 1, (1, 1), (2, 2), (0, 0), (BoundaryCosts(0, 0, False),)))
    late = cell.alike(((FORWARD, INPUT, WEIGHT) * 2, (FORWARD, FORWARD, INPUT, WEIGHT, INPUT, WEIGHT)))
    assert cell.run(late) is None
    assert cell.critical_path(late) == ()


def test_turns_decide_which_pipeline_sends_first() -> None:
    costs = CellCosts(
        PipelineShape(2, 1), 2, (10, 10), (2, 2), (0, 0), (BoundaryCosts(0, 50, shared=True),), between_ns=(0, 0)
    )
    cell = OrderedCell(costs)
    plan = cell.plan(CellOrders(((FORWARD, INPUT, WEIGHT),) * 4, ((1, 0), (0, 1))))
    assert plan.activation_turns == (((1, 0), (0, 0)),)
    assert plan.gradient_turns == (((0, 0), (1, 0)),)
    starts = {place: times[0][0] for place, times in PlanRun(plan, costs).iterate().items()}
    assert (starts[0, 1], starts[1, 1]) == (110, 60)


@st.composite
def cells(draw: st.DrawFn) -> CellCosts:
    stages = draw(st.integers(1, 4))
    times = st.tuples(*[st.integers(0, 50)] * stages)
    boundary = st.builds(BoundaryCosts, st.integers(0, 90), st.integers(0, 60), st.booleans())
    return CellCosts(
        PipelineShape(stages, draw(st.integers(1, 6)), draw(st.booleans()), draw(st.none() | st.integers(1, 6))),
        draw(st.integers(1, 3)),
        draw(times),
        draw(times),
        draw(times),
        draw(st.tuples(*[boundary] * (stages - 1))),
        draw(st.just(()) | times),
        sends_block=draw(st.booleans()),
    )


@settings(max_examples=200, deadline=None)
@given(cells(), st.sampled_from(RULES))
def test_a_run_takes_the_times_of_ranks_that_follow_the_plan(costs: CellCosts, rules: SplitRules) -> None:
    cell = OrderedCell(costs)
    orders = cell.alike(SplitSimulation(costs, rules).run())
    run, plan = cell.run(orders), cell.plan(orders)
    if run is None:
        with pytest.raises(ValueError, match="do not come to an end"):
            priced(plan, costs)
        return
    assert run.makespan_ns == priced(plan, costs).makespan_ns
    ranks = PlanRun(plan, costs)
    ends_ns = [max(times[-1][1] for times in ranks.iterate().values()) for _ in range(24)]
    assert (ends_ns[-1] - ends_ns[11]) / 12 <= run.period_ns + 1e-9
    assert cell.busy_ns <= run.period_ns


@given(cells())
def test_no_less_memory_is_held_than_allowed_by_an_order_that_is_whole(costs: CellCosts) -> None:
    cell = OrderedCell(costs)
    bound = costs.shape.most_in_flight(0)
    forwards = (FORWARD,) * bound
    recompute = (ActionKind.RECOMPUTE,) if costs.shape.recomputes(0) else ()
    rest = (*recompute, INPUT, WEIGHT)
    if bound < costs.shape.microbatches:
        assert not cell.is_whole(0, (*forwards, FORWARD, *rest))
    assert cell.is_whole(0, (*forwards, *rest))
    assert not OrderedCell(replace(costs, shape=costs.shape.holding(1))).is_whole(0, (FORWARD, FORWARD, *rest))
