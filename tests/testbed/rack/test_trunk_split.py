"""Trunks that change, divided among machines."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.gateway_plan import PortState, WanPort
from wanbed.testbed.network.links.wan_link import LinkConditions, course_of
from wanbed.testbed.network.shared_rate import bytes_per_s
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.machine_plan import MachinePlan, Underlay, plan_machines

ON_TWO = {"east-0": "a", "east-1": "a", "east-2": "b", "west-0": "c"}
EVENTS = [
    {"at": "1s", "rate": "30Mbit", "node_pair_rate": "12Mbit"},
    {"at": "2s", "rate": "300Mbit"},
    {"at": "3s", "for": "1s", "down": True},
]


def planned(wan: dict[str, Any], gateways: dict[str, str] | None = None) -> dict[str, MachinePlan]:
    document = {
        "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "5ms", **wan},
    }
    topology: Topology = resolve_topology(parse_model(TopologySpec, document, "test"))
    names = [*dict.fromkeys(ON_TWO.values()), *(gateways or {}).values()]
    underlays = {name: Underlay(f"192.0.2.{number}", "eth0", 1500) for number, name in enumerate(names, start=1)}
    return plan_machines(topology, 1, 1, ON_TWO, underlays, gateways=gateways or {})


def port(plan: MachinePlan) -> WanPort:
    (only,) = plan.gateway.wan_ports
    return only


def rates_mbit(state: PortState) -> tuple[float | None, float | None]:
    """The rates of the trunk and of a node pair."""
    trunk, pair = None if state.trunk is None else state.trunk.rate_bytes_per_s, pair_bytes_per_s(state)
    return None if trunk is None else trunk * 8e-6, None if pair is None else pair * 8e-6


def pair_bytes_per_s(state: PortState) -> int | None:
    """The rate of a node pair: of its leaf, or above it."""
    return state.netem.rate_bytes_per_s if state.pair is None else state.pair.rate_bytes_per_s


def test_every_state_of_a_trunk_is_divided_as_far_as_it_can_bind() -> None:
    plans = planned({"rate": "60Mbit", "node_pair_rate": "50Mbit", "events": EVENTS})
    courses = {name: port(plans[name]).course for name in "ab"}
    assert courses["a"] is not None
    assert courses["b"] is not None
    # The machine ``a`` sends from two of the three hosts. From 2 s on the pairs together do not fill 300 Mbit/s.
    assert [rates_mbit(state) for state in courses["a"].states[:3]] == [(30, 30), (15, 12), (None, 12)]
    assert [rates_mbit(state) for state in courses["b"].states[:3]] == [(None, 30), (None, 12), (None, 12)]
    assert courses["a"].states[3].netem.impairments.loss == 1
    assert courses["a"].steps == courses["b"].steps
    for name in "ab":
        held = port(plans[name])
        assert held.course is not None
        assert (held.netem, held.trunk) == (held.course.states[0].netem, held.course.states[0].trunk)
        (split,) = plans[name].trunk_splits
        assert (split.machines, split.rate_bps) == (2, 30_000_000)


def test_a_trunk_that_binds_only_later_is_divided_too() -> None:
    plans = planned({"rate": "1Gbit", "node_pair_rate": "20Mbit", "events": [{"at": "1s", "rate": "40Mbit"}]})
    (split,) = plans["a"].trunk_splits
    assert (split.source, split.destination, split.rate_bps) == ("east", "west", 20_000_000)
    course = port(plans["a"]).course
    assert course is not None
    assert [rates_mbit(state) for state in course.states] == [(None, 20), (20, 20)]


def test_the_gateway_machine_has_the_course_of_the_whole_trunk_and_the_others_have_none() -> None:
    plans = planned({"rate": "60Mbit", "events": EVENTS}, {"east": "g"})
    course = port(plans["g"]).course
    assert course is not None
    assert [rates_mbit(state)[0] for state in course.states[:3]] == [60, 30, None]
    assert [plans[name].gateway.wan_ports for name in "ab"] == [(), ()]
    assert MachinePlan.from_json(plans["g"].to_json()) == plans["g"]


RATES_BPS = st.none() | st.integers(1000, 10**11)


@given(
    st.lists(st.builds(LinkConditions, st.just(0), RATES_BPS, RATES_BPS), min_size=2, max_size=5),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5),
)
def test_machines_together_never_exceed_a_trunk_in_any_of_its_states(
    ever: list[LinkConditions], machines: list[str]
) -> None:
    document = {
        "datacenters": [{"name": "east", "hosts": len(machines)}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "0ms"},
    }
    topology = resolve_topology(parse_model(TopologySpec, document, "test"))
    course = course_of(enumerate(ever))
    (link,) = topology.wan
    topology = replace(topology, wan=(replace(link, conditions=course.first, courses=(course, None)),))
    machine_of = {f"east-{number}": name for number, name in enumerate(machines)} | {"west-0": "w"}
    underlays = {name: Underlay("192.0.2.1", "eth0", 1500) for name in {*machine_of.values()}}
    plans = plan_machines(topology, 1, 1, machine_of, underlays)
    sending = [plans[name] for name in dict.fromkeys(machines)]
    for number, conditions in enumerate(course.distinct):
        if conditions.rate_bps is None:
            continue
        sent = 0
        for plan in sending:
            own = port(plan)
            state = PortState(own.netem, own.trunk) if own.course is None else own.course.states[number]
            rate = pair_bytes_per_s(state)
            assert rate is not None
            offered = len(plan.hosts) * rate
            sent += offered if state.trunk is None else min(offered, state.trunk.rate_bytes_per_s)
        # Rates are whole bytes, at least 8 of them for each pair.
        assert sent <= bytes_per_s(conditions.rate_bps) + 8 * len(machines)
