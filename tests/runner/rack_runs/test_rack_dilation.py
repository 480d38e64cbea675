"""The dilation of a run over a rack: the smallest with which every machine carries its part."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.rack.three_machines import MACHINE_OF, MBIT, demand_of, topology
from tests.support.runner.background import with_background
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack_runs.cluster import Node
from wanbed.runner.rack_runs.placement import PointPlacement, place_point
from wanbed.runner.rack_runs.rack_dilation import (
    Carriers,
    MachineDemand,
    RackDilation,
    derived_factor,
    flows_of,
    heaviest_demands,
    with_headroom,
)
from wanbed.runner.resolve.dilation import CapacityError
from wanbed.testbed.network.topology import Topology

RACK = [Node(name, f"id-of-{name}", "10.0.0.1") for name in ("one", "two")]


def placements(**sweep: list[str]) -> list[PointPlacement]:
    """Return where the hosts of one pipeline over two datacenters are, for every rate of a sweep."""
    return [
        place_point(point, RACK, 1)
        for point in parse_experiment(
            {**with_background(engine="rack"), "sweep": {"topology.wan.rate": sweep["rate"]}}, "file", Path()
        ).points()
    ]


def test_the_machine_that_has_least_to_spare_decides_and_is_recorded() -> None:
    loads = {"one": MachineDemand(700 * MBIT, 1000 * MBIT, 8, 1), "two": MachineDemand(400 * MBIT, 250 * MBIT, 2, 3)}
    factor = derived_factor(loads, real_time=False)
    assert factor == 2.0
    facts = RackDilation(factor, loads).facts()
    assert (facts["dilation"], facts["capacity_bps"], facts["dilation_decided_by"]) == (2.0, 250 * MBIT, "two")
    assert facts["dilation_machines"]["one"] == {
        "demand_bps": 700 * MBIT,
        "capacity_bps": 1000 * MBIT,
        "cores": 8,
        "hosts": 1,
    }


def test_machines_with_enough_to_spare_dilate_nothing() -> None:
    assert derived_factor({"one": MachineDemand(700 * MBIT, 1000 * MBIT, 8, 1)}, real_time=True) == 1.0
    assert derived_factor({}, real_time=False) == 1.0
    assert RackDilation(1.0, {}).facts() == {"dilation": 1.0, "capacity_bps": None}


def test_a_machine_that_cannot_carry_its_part_is_named() -> None:
    loads = {"two": MachineDemand(400 * MBIT, 250 * MBIT, 2, 3)}
    with pytest.raises(
        CapacityError,
        match=r"ask for 400Mbit at once, more than 200Mbit, 80 % of the 250Mbit that machine two carries, and what",
    ):
        derived_factor(loads, real_time=True)


def test_what_is_heaviest_for_every_machine_is_measured_alone() -> None:
    every = placements(rate=["20Mbit", "80Mbit", "40Mbit"])
    ((placed, demand),) = heaviest_demands(every)
    assert placed is every[1]
    assert demand.wan_bps == 2 * 80 * MBIT


def test_nothing_is_measured_where_no_link_has_a_rate() -> None:
    assert heaviest_demands([]) == []


def demands(network: Topology, gateways: Mapping[str, str] = {}) -> dict[str, int]:
    return Carriers(network, MACHINE_OF, gateways).demands_bps(demand_of(network))


def test_a_machine_carries_what_its_own_hosts_send_and_receive() -> None:
    # A pipeline of east-0, east-1, west-0, west-1: only east-1 and west-0 use the WAN, both ways.
    assert demands(topology(node_pair_rate="200Mbit")) == {
        "one": 300 * MBIT,
        "two": 300 * MBIT + 2 * 200 * MBIT,
        "three": 300 * MBIT + 2 * 200 * MBIT,
    }


def test_a_gateway_machine_carries_what_its_datacenter_sends_in_and_out() -> None:
    found = demands(topology(node_pair_rate="200Mbit"), {"east": "gate"})
    assert found["gate"] == 2 * 200 * MBIT
    assert found["two"] == 300 * MBIT + 2 * 200 * MBIT


def test_no_link_carries_more_than_its_trunk() -> None:
    network = topology(node_pair_rate="800Mbit")
    found = Carriers(network, MACHINE_OF, {}).demands_bps(demand_of(network, pipelines=2))
    assert found == {"one": 2 * 800 * MBIT, "two": 2 * 800 * MBIT, "three": 2 * 1000 * MBIT}


def test_no_machine_sends_more_than_its_part_of_a_divided_trunk() -> None:
    network = topology(node_pair_rate="800Mbit")
    parts = {("east", "west"): 500 * MBIT}
    found = Carriers(network, MACHINE_OF, {}).demands_bps(demand_of(network, pipelines=2), parts)
    assert found == {"one": (500 + 800) * MBIT, "two": (500 + 800) * MBIT, "three": 2 * 1000 * MBIT}


def test_what_was_measured_is_added_up_without_a_limit() -> None:
    network = topology(node_pair_rate="200Mbit")
    rates = [(pair, 123.5 * MBIT) for pair in demand_of(network).wan_pairs]
    assert Carriers(network, MACHINE_OF, {}).traffic_bps(rates) == {
        "one": 0,
        "two": pytest.approx(247 * MBIT),
        "three": pytest.approx(247 * MBIT),
    }


def test_rates_are_higher_than_those_of_the_experiment_and_nothing_else_is_in_the_way() -> None:
    network = with_headroom(topology(node_pair_rate="200Mbit", loss="1%", jitter="1ms"))
    there = network.conditions("east", "west")
    assert (there.rate_bps, there.node_pair_rate_bps, there.latency_ns) == (1600 * MBIT, 320 * MBIT, 5_000_000)
    assert not any(value for _, value in there.impairments.items())
    assert network.intra_rate_bps == 480 * MBIT
    assert not network.changes


def test_a_link_that_changes_stays_as_it_is_at_first() -> None:
    changing = topology(events=[{"at": "1s", "rate": "10Mbit"}])
    assert changing.changes
    assert with_headroom(changing).conditions("west", "east").rate_bps == 1600 * MBIT
    assert not with_headroom(changing).changes


def test_every_node_pair_of_the_wan_sends_and_each_machine_is_an_end_inside() -> None:
    network = topology(node_pair_rate="200Mbit")
    pairs = flows_of(demand_of(network), Carriers(network, MACHINE_OF, {}))
    assert [(pair.source, pair.destination) for pair in pairs] == [
        ("east-1", "west-0"),
        ("west-0", "east-1"),
        ("east-0", "east-1"),
        ("west-0", "west-1"),
    ]


def test_what_has_no_rate_does_not_send() -> None:
    network = topology(rate="unlimited")
    pairs = flows_of(demand_of(network), Carriers(network, MACHINE_OF, {}))
    assert {pair.source.partition("-")[0] for pair in pairs} == {"east", "west"}
    assert len(pairs) == 2
