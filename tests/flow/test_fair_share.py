from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.fair_share import fair_rates_bps

RESOURCES = 5

flows_of = st.lists(st.sets(st.integers(0, RESOURCES - 1), min_size=1, max_size=3).map(sorted), min_size=1, max_size=12)
capacities = st.lists(st.integers(1_000, 10**11), min_size=RESOURCES, max_size=RESOURCES)


def test_pairs_below_their_share_of_a_trunk_leave_the_rest_to_the_others() -> None:
    # Resource 0 is a trunk of 90; the pairs may have 60, 60 and 20.
    assert fair_rates_bps([[0, 1], [0, 2], [0, 3]], {0: 90, 1: 60, 2: 60, 3: 20}) == [35, 35, 20]


def test_two_flows_share_one_resource_and_a_third_is_alone() -> None:
    assert fair_rates_bps([[0], [0], [1]], {0: 100, 1: 70}) == [50, 50, 70]


def test_rates_are_rounded_down() -> None:
    assert fair_rates_bps([[0]] * 3, {0: 100}) == [33, 33, 33]


@given(flows_of, capacities)
def test_no_resource_is_above_its_capacity(flows: list[list[int]], capacities: list[int]) -> None:
    rates = fair_rates_bps(flows, dict(enumerate(capacities)))
    used: Counter[int] = Counter()
    for resources, rate in zip(flows, rates, strict=True):
        used.update(dict.fromkeys(resources, rate))
    assert all(used[resource] <= capacities[resource] for resource in used)


@given(flows_of, capacities)
def test_rates_are_max_min_fair(flows: list[list[int]], capacities: list[int]) -> None:
    """Max-min fairness: every flow crosses a full resource on which no other flow has a higher rate."""
    rates = fair_rates_bps(flows, dict(enumerate(capacities)))
    for resources, rate in zip(flows, rates, strict=True):
        bottlenecks = []
        for resource in resources:
            others = [other for crossed, other in zip(flows, rates, strict=True) if resource in crossed]
            # Rounding down leaves up to one bit/s a flow.
            full = sum(others) > capacities[resource] - len(others) * len(flows)
            bottlenecks.append(full and rate >= max(others) - len(flows))
        assert any(bottlenecks)


@given(flows_of, capacities, st.integers(2, 6))
def test_equal_copies_on_a_resource_have_what_one_has_on_its_part_of_it(
    flows: list[list[int]], capacities: list[int], copies: int
) -> None:
    """The property by which one of several equal DP-cells can represent all, to the bit."""
    shared = fair_rates_bps(flows * copies, dict(enumerate(capacities)))
    alone = fair_rates_bps(flows, {index: capacity // copies for index, capacity in enumerate(capacities)})
    assert shared == alone * copies


def test_a_resource_with_less_than_1_bit_per_s_a_flow_still_gives_each_that() -> None:
    assert fair_rates_bps([[0]] * 3, {0: 2}) == [1, 1, 1]
