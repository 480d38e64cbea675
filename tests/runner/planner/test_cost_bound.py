"""Bounds of costs are below all prices, and equal the price where they account for all that is sent."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.runner.planner_instances import pricing_of, random_task
from wanbed.flow.line import Line
from wanbed.runner.planner.cost_bound import CostBound
from wanbed.runner.planner.effort import Effort, Limits, Prices
from wanbed.runner.planner.goal import CostLimit, Goal, Objective
from wanbed.runner.planner.planning import PlanningTask, ceiling, plan, search_space
from wanbed.runner.planner.pricing import simulated_pricing
from wanbed.runner.planner.search import every_candidate, search_better, search_exhaustively, search_greedily
from wanbed.runner.planner.search_space import Pricing
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.testbed.network.price_list import PriceList
from wanbed.workloads.schedules.planning import shortened_planner

GOALS = st.builds(
    Goal,
    st.sampled_from(Objective),
    st.none()
    | st.builds(CostLimit, st.sampled_from([0.0, 2.0, 8.0, 30.0]), st.just("USD/h"))
    | st.builds(CostLimit, st.sampled_from([0.0, 0.02, 0.1, 1.0]), st.just("USD/Mtoken")),
)


@pytest.fixture(scope="module", autouse=True)
def quick_plans() -> Iterator[None]:
    """Make plans in little time: here they have to be right, and need not be short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortened_planner, "_SHORTENED_ACTIONS", 2_000)
        patch.setattr(shortened_planner, "_PRICED_ACTIONS", 1_000)
        yield


PRICES = PriceList(
    (("a", 3.0), ("b", 1.0), ("c", 2.0)),
    tuple(
        {("a", "b"): 1.0, ("b", "a"): 2.0, ("a", "c"): 0.5, ("c", "a"): 0.5, ("b", "c"): 4.0, ("c", "b"): 4.0}.items()
    ),
)


def bound(*, headers: bool = False) -> CostBound:
    """Of four stages over datacenters of 4, 2 and 6 GPUs, with 10 microbatches of 1, 2 and 3 MB a boundary."""
    line = Line(None, 0, headers)
    return CostBound(PRICES, {"a": 4, "b": 2, "c": 6}, (1_000_000, 2_000_000, 3_000_000), 10, line)


def test_stages_without_a_place_are_in_the_cheapest_datacenters_that_have_room() -> None:
    # Two pipelines find one stage in b, three in c, and two in a.
    assert bound().gpus_usd_per_h(2, ()) == pytest.approx(2 * (1.0 + 3 * 2.0), rel=1e-8)
    assert bound().gpus_usd_per_h(2, (("a", 2),)) == pytest.approx(2 * (2 * 3.0 + 1.0 + 2.0), rel=1e-8)
    assert bound().gpus_usd_per_h(1, (("c", 4),)) == pytest.approx(8.0, rel=1e-8)


def test_every_boundary_is_paid_both_ways() -> None:
    # 2 x 10 x 1 MB from a to b and back, 2 x 10 x 2 MB from b to c and back.
    assert bound().egress_usd(2, (("a", 1), ("b", 1), ("c", 2))) == pytest.approx(0.02 * 3.0 + 0.04 * 8.0, rel=1e-8)
    assert bound().egress_usd(2, (("c", 4),)) == 0.0
    assert bound().egress_usd(2, ()) == 0.0


def test_a_boundary_to_an_unknown_datacenter_costs_what_the_cheapest_with_room_does() -> None:
    assert bound().egress_usd(1, (("a", 1),)) == pytest.approx(0.01 * 1.0, rel=1e-8)
    # For five pipelines only c has room, whatever b costs.
    assert bound().egress_usd(5, (("a", 2),)) == pytest.approx(0.1 * 1.0, rel=1e-8)
    assert bound().egress_usd(5, (("c", 2),)) == 0.0


def test_headers_are_paid() -> None:
    plain, framed = (bound(headers=headers).egress_usd(1, (("a", 1), ("b", 3))) for headers in (False, True))
    assert framed / plain == pytest.approx(1514 / 1448, rel=1e-6)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from(["gpipe", "1f1b", "varuna", "zb-h1", "atlas"]), GOALS, st.data())
def test_no_simulated_candidate_is_worth_more_than_its_ceiling(
    seed: int, schedule: str, goal: Goal, data: st.DataObject
) -> None:
    task = random_task(seed, schedule, goal=goal if costs_anything(seed) else Goal())
    candidate = data.draw(st.sampled_from(list(every_candidate(search_space(task)))))
    price = simulated(task)(candidate)
    worth = task.goal.worth(price.figures)
    tops = [
        ceiling(task)(candidate.pipelines, candidate.runs[:count], None) for count in range(len(candidate.runs) + 1)
    ]
    tops.append(ceiling(task)(candidate.pipelines, candidate.runs, candidate.pipelines_per_cell))
    assert worth <= tops[-1]
    assert all(later <= earlier + 1e-8 * abs(earlier) for earlier, later in pairwise(tops))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.data())
def test_the_bound_of_what_is_sent_is_what_a_simulation_pays(seed: int, data: st.DataObject) -> None:
    task = random_task(seed, "1f1b", goal=Goal())
    candidate = data.draw(st.sampled_from(list(every_candidate(search_space(task)))))
    cost, prices = simulated(task)(candidate).cost, task.topology.prices
    assert cost is not None
    assert prices is not None
    line = Line(None, 0, headers=True)
    costs = CostBound(prices, search_space(task).free_gpus, task.costs.least.activation_bytes, task.microbatches, line)
    assert costs.gpus_usd_per_h(candidate.pipelines, candidate.runs) == pytest.approx(cost.gpus_usd_per_h, rel=1e-8)
    # A transfer has a header of its own, which the bound leaves out.
    of_payload = costs.egress_usd(candidate.pipelines, candidate.runs)
    assert of_payload <= cost.egress_usd <= 1.01 * of_payload


@examples(8, drawn_anew=15)
@given(st.integers(0, 10_000), GOALS)
def test_better_search_finds_the_exhaustive_answer_for_every_goal(seed: int, goal: Goal) -> None:
    task = random_task(seed, most_gpus=5, goal=goal if costs_anything(seed) else Goal())
    space, pricing = search_space(task), pricing_of(task)
    greedy = search_greedily(space, prices_of(task), ceiling(task))
    better = search_better(space, prices_of(task), ceiling(task))
    oracle = search_exhaustively(space, prices_of(task))
    assert better.best.worth == pytest.approx(oracle.best.worth, rel=1e-12)
    assert better.best.worth >= greedy.best.worth
    assert greedy.at_most >= oracle.best.worth * (1 - 1e-12) - 1e-12
    assert better.cut_off is None
    assert better.simulations <= oracle.simulations
    found = plan(task, "better", pricing=pricing)
    assert found.proven
    within = [each for each in oracle.priced if task.goal.allows(each.price.figures)]
    assert found.within_limit == bool(within)
    if within:
        best = max(within, key=lambda each: each.worth)
        assert found.chosen.worth == pytest.approx(best.worth, rel=1e-12)


@examples(6, drawn_anew=12)
@given(st.integers(0, 10_000), st.integers(1, 3), GOALS)
def test_no_candidate_exceeds_what_a_search_that_was_cut_off_says_is_possible(
    seed: int, simulations: int, goal: Goal
) -> None:
    task = random_task(seed, most_gpus=4, goal=goal if costs_anything(seed) else Goal())
    space = search_space(task)
    most = search_exhaustively(space, prices_of(task)).best.worth
    found = search_better(space, prices_of(task, simulations), ceiling(task))
    assert found.at_most >= most - 1e-12 * abs(most)
    assert found.at_most >= found.best.worth


def costs_anything(seed: int) -> bool:
    prices = random_task(seed, "gpipe", goal=Goal()).topology.prices
    return prices is not None and prices.any_above_zero


def prices_of(task: PlanningTask, simulations: int | None = None) -> Prices:
    return Prices(pricing_of(task), Effort(Limits(simulations=simulations)), goal=task.goal)


def simulated(task: PlanningTask) -> Pricing:
    return simulated_pricing(task.topology, task.resolve, task.counted_per_sequence, TcpEffects(), task.iterations)
