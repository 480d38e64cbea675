"""Changes of orders, and what they leave of a period."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.workloads.optimal_cell import OptimalCell
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.ordered_cell import CellOrders, OrderedCell
from wanbed.workloads.schedules.planning.shortening import Shortening
from wanbed.workloads.schedules.planning.split_planner import RULES, SplitRules, SplitSimulation

FORWARD, INPUT, WEIGHT = ActionKind.FORWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT


def two_stages(memory_bound: int | None) -> CellCosts:
    """Stages of unequal times, whose first one recomputes: its shortest period needs recomputes far ahead."""
    return CellCosts(
        PipelineShape(2, 4, (True, False), memory_bound),
        1,
        (30, 60),
        (110, 140),
        (30, 60),
        (BoundaryCosts(10, 80, shared=False),),
        (80, 40),
        backward_input_ns=(60, 40),
        backward_weight_ns=(50, 100),
    )


@pytest.mark.parametrize("memory_bound", [2, 3, None])
def test_a_small_cell_is_shortened_to_the_optimum_from_any_order(memory_bound: int | None) -> None:
    costs = two_stages(memory_bound)
    cell = OrderedCell(costs)
    optimum = OptimalCell(costs, splits=True).period()
    assert optimum.exact
    for rules in (RULES[0], RULES[-1]):
        start = cell.alike(SplitSimulation(costs, rules).run())
        run = cell.run(Shortening(cell, 200_000).shortened([start])[0])
        assert run is not None
        assert run.period_ns == optimum.most_ns


def test_turns_on_a_shared_line_change_places_where_that_is_shorter() -> None:
    # Both pipelines of stage 1 end their first backward late, the second one's link is what the first one waits for.
    costs = CellCosts(PipelineShape(2, 2), 2, (10, 10), (20, 20), (0, 0), (BoundaryCosts(0, 30, shared=True),))
    cell = OrderedCell(costs)
    orders = ((FORWARD, FORWARD, INPUT, WEIGHT, INPUT, WEIGHT), (FORWARD, INPUT, WEIGHT) * 2)
    stuck = CellOrders(orders * 2, ((0, 0, 1, 1), (0, 1, 0, 1)))
    before = cell.run(stuck)
    after = cell.run(Shortening(cell, 100_000).shortened([stuck])[0])
    assert before is not None
    assert after is not None
    assert after.period_ns < before.period_ns


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(2, 3), st.integers(1, 4), st.integers(1, 2)),
    st.lists(st.integers(1, 60), min_size=4, max_size=4),
    st.booleans(),
    st.sampled_from(RULES),
)
def test_what_is_shortened_is_whole_and_no_longer(
    size: tuple[int, int, int], times: list[int], shared: bool, rules: SplitRules
) -> None:
    stages, microbatches, bound = size
    forward, backward, latency, occupancy = times
    costs = CellCosts(
        PipelineShape(stages, microbatches, memory_bound=bound),
        2,
        (forward,) * stages,
        (backward,) * stages,
        (0,) * stages,
        (BoundaryCosts(latency, occupancy, shared=shared),) * (stages - 1),
    )
    cell = OrderedCell(costs)
    start = cell.alike(SplitSimulation(costs, rules).run())
    found = Shortening(cell, 10_000).shortened([start])
    runs = [cell.run(orders) for orders in (start, *found)]
    lengths = [run.length_ns for run in runs if run is not None]
    assert len(lengths) == len(runs)
    assert lengths[1] == min(lengths)
    for orders in found:
        assert all(cell.is_whole(index % stages, order) for index, order in enumerate(orders.stages))


def test_starts_that_all_deadlock_are_refused() -> None:
    cell = OrderedCell(CellCosts(PipelineShape(2, 2), 1, (1, 1), (2, 2), (0, 0), (BoundaryCosts(0, 0, False),)))
    stuck = cell.alike(((FORWARD, INPUT, WEIGHT) * 2, (FORWARD, FORWARD, INPUT, WEIGHT, INPUT, WEIGHT)))
    with pytest.raises(ValueError, match="deadlock"):
        Shortening(cell, 1000).shortened([stuck])
