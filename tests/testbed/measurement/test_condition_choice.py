"""Conditions that are measured, and links below 1 Mbit/s, which are refused before anything is started."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.netem_profiles.traces import csv_trace
from wanbed.testbed.measurement.condition_choice import (
    MEASURED_MAX,
    check_measurable,
    choose_conditions,
    unmeasured_conditions,
)
from wanbed.testbed.network.links.wan_link import LinkConditions, LinkCourse, WanLink, course_of
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

S = 10**9


def rates(*bps: int, spacing_ns: int = S, period_ns: int | None = None) -> LinkCourse:
    return course_of(
        ((number * spacing_ns, LinkConditions(0, rate)) for number, rate in enumerate(bps)), period_ns=period_ns
    )


def link(there: LinkCourse | None, back: LinkCourse | None = None) -> WanLink:
    first = LinkConditions() if there is None else there.first
    return WanLink(("east", "west"), first, LinkConditions() if back is None else back.first, (there, back))


def test_each_distinct_condition_is_measured_once_where_it_comes_first() -> None:
    chosen = choose_conditions(link(rates(10, 20, 10, 30, 20)))
    assert chosen.measured_ns == (0, 1 * S, 3 * S)
    assert chosen.unmeasured_ns == ()


def test_conditions_are_those_of_both_directions_together() -> None:
    chosen = choose_conditions(link(rates(10, 20), rates(5, 6, spacing_ns=3 * S)))
    assert chosen.measured_ns == (0, 1 * S, 3 * S)


def test_a_course_that_repeats_is_measured_as_long_as_it_is_new() -> None:
    assert choose_conditions(link(rates(10, 20, period_ns=5 * S))).measured_ns == (0, 1 * S)


def test_a_link_that_does_not_change_has_its_first_conditions_alone() -> None:
    assert choose_conditions(link(None)).measured_ns == (0,)


@given(st.integers(MEASURED_MAX + 1, 300))
def test_of_many_conditions_some_are_measured_spread_evenly_the_first_and_the_last_among_them(count: int) -> None:
    chosen = choose_conditions(link(rates(*range(1, count + 1))))
    assert len(chosen.measured_ns) == MEASURED_MAX
    assert (chosen.measured_ns[0], chosen.measured_ns[-1]) == (0, (count - 1) * S)
    assert sorted((*chosen.measured_ns, *chosen.unmeasured_ns)) == [number * S for number in range(count)]
    gaps = [later - earlier for earlier, later in zip(chosen.measured_ns, chosen.measured_ns[1:], strict=False)]
    assert max(gaps) - min(gaps) <= S


def test_what_is_not_measured_is_named_in_the_experiments_time() -> None:
    topology = Topology((), 0, None, (link(rates(*range(1, 14), spacing_ns=4 * S)),))
    (said,) = unmeasured_conditions(topology, dilation=4.0)
    assert said == (
        "east and west: 6 of their link's 13 conditions are measured, spread evenly, not those from 1s, 3s, 4s, 6s, 8s "
        "and 2 later times on"
    )
    assert unmeasured_conditions(Topology((), 0, None, (link(rates(10, 20)),))) == []


def topology(trace: str | None = None, links: list[dict[str, Any]] | None = None, **wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": "dune", "hosts": 1}, {"name": "fjord", "hosts": 1}],
        "wan": {"latency": "10ms", **wan, **({} if trace is None else {"trace": "t.csv"})},
        "links": links or [],
    }
    traces = {} if trace is None else {"t.csv": csv_trace(trace, "t.csv", "t")}
    return resolve_topology(parse_model(TopologySpec, document, "test"), traces=traces)


def refusal(network: Topology, dilation: float = 1.0) -> str:
    with pytest.raises(InputError) as refused:
        check_measurable(network, dilation)
    return str(refused.value)


@pytest.mark.parametrize("rate", ["1Mbit", "100Gbit", "unlimited"])
def test_links_from_a_megabit_on_are_measured(rate: str) -> None:
    check_measurable(topology(rate=rate))


@pytest.mark.parametrize("rate", ["9600bit", "56kbit", "999kbit"])
def test_a_slower_link_is_refused_with_the_least_rate_and_the_remedy(rate: str) -> None:
    assert refusal(topology(rate=rate)) == (
        f"topology: the link from dune to fjord has {rate}: on the real clock links are measured from 1Mbit on: give "
        "more, or clock: virtual"
    )


def test_the_slower_direction_and_the_slower_node_pair_count() -> None:
    back = [{"from": "fjord", "to": "dune", "rate": "500kbit"}]
    assert "from fjord to dune has 500kbit" in refusal(topology(rate="50Mbit", links=back))
    assert "from dune to fjord has 200kbit" in refusal(topology(rate="50Mbit", node_pair_rate="200kbit"))


def test_a_rate_counts_as_dilation_leaves_it() -> None:
    check_measurable(topology(rate="10Mbit"), 10)
    assert "has 10Mbit, which dilation divides by 20: " in refusal(topology(rate="10Mbit"), 20)


def test_the_conditions_of_a_link_that_changes_count_if_they_are_measured() -> None:
    assert "has 64kbit" in refusal(topology("t_s,rate\n0,5Mbit\n10,64kbit\n20,5Mbit\n", rate="10Mbit"))
    rows = "".join(f"{second},{'64kbit' if second == 1 else f'{second + 5}Mbit'}\n" for second in range(100))
    check_measurable(topology(f"t_s,rate\n{rows}", rate="10Mbit"))


def test_a_link_that_is_down_has_no_rate() -> None:
    check_measurable(topology("t_s,rate,up\n0,5Mbit,\n10,64kbit,false\n20,5Mbit,\n", rate="10Mbit"))
