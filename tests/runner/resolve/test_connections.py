"""Demand of node pairs, connections that fill them, and bytes that connections hold."""

from dataclasses import replace
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.connections import (
    CutPair,
    connections_to_fill,
    count_connections,
    cut_pairs,
    held_bytes,
    network_demand,
    tcp_settings,
    window_bps,
)
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.placement import Pair, place_stages
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

WINDOW_BYTES = 700 * 1024

AUTO = TransportSpec(connections="auto", window="700KiB")


def point(**wan: str) -> SweepPoint:
    return sweep_point(
        {
            "topology": {
                "datacenters": [
                    {"name": "east", "hosts": 2},
                    {"name": "west", "hosts": 2},
                    {"name": "far", "hosts": 1},
                ],
                "wan": {"latency": "10ms", **wan},
            }
        }
    )


def counted(of: SweepPoint, transport: TransportSpec) -> dict[tuple[str, str], int]:
    return count_connections(of.topology, of.variants[0].pairs, transport)


def test_one_connection_moves_its_window_per_round_trip() -> None:
    # Fifty times a second.
    assert window_bps(AUTO, 20_000_000) == WINDOW_BYTES * 8 * 50


def test_a_configured_number_holds_for_every_pair() -> None:
    assert counted(point(rate="1Gbit"), TransportSpec(connections=7)) == {
        ("east-0", "east-1"): 7,
        ("east-1", "west-0"): 7,
        ("west-0", "west-1"): 7,
        ("west-1", "far-0"): 7,
    }


def test_auto_fills_each_pairs_cap_with_what_one_connection_moves() -> None:
    # 1000 Mbit/s leave 956.4 to the payload; 1.1 times that over 286.7 is 3.67.
    assert counted(point(rate="10Gbit", node_pair_rate="1Gbit"), AUTO) == {
        ("east-0", "east-1"): 1,
        ("east-1", "west-0"): 4,
        ("west-0", "west-1"): 1,
        ("west-1", "far-0"): 4,
    }


def test_a_wider_window_takes_fewer_connections() -> None:
    wider = TransportSpec(connections="auto", window="4MiB")
    assert counted(point(rate="1Gbit"), wider)["east-1", "west-0"] == 1


@pytest.mark.parametrize("wan", [{}, {"rate": "1Gbit", "latency": "0ms"}])
def test_a_pair_without_a_cap_or_without_latency_has_one_connection(wan: dict[str, str]) -> None:
    assert set(counted(point(**wan), AUTO).values()) == {1}


def test_there_are_never_more_than_64() -> None:
    assert counted(point(rate="100Gbit"), AUTO)["east-1", "west-0"] == 64


def test_a_cut_pair_reports_wanted_connections_and_carried_fraction() -> None:
    wide = point(rate="100Gbit", node_pair_rate="50Gbit")
    cuts = cut_pairs(wide.topology, wide.variants[0].pairs, AUTO)
    # 50 Gbit/s leave 47.82 to the payload; a connection moves 700 KiB fifty times a second, 286.7 Mbit/s.
    assert [(cut.hosts, cut.wanted) for cut in cuts] == [(("east-1", "west-0"), 184), (("west-1", "far-0"), 184)]
    assert cuts[0].carried == pytest.approx(64 * 0.28672 / 47.82, rel=1e-3)


def test_filled_pairs_and_configured_numbers_are_not_cut() -> None:
    narrow, wide = point(rate="1Gbit"), point(rate="100Gbit")
    assert cut_pairs(narrow.topology, narrow.variants[0].pairs, AUTO) == ()
    assert cut_pairs(wide.topology, wide.variants[0].pairs, TransportSpec(connections=64)) == ()


def test_the_margin_alone_is_cut_without_loss() -> None:
    # 17.6 Gbit/s leave 16.8 Gbit/s to the payload, which 59 connections carry and 65 fill with a tenth to spare.
    near = point(rate="17.6Gbit")
    assert cut_pairs(near.topology, near.variants[0].pairs, AUTO)[0] == CutPair(("east-1", "west-0"), 65, 1.0)


def test_connections_fill_the_faster_direction_of_a_pair() -> None:
    topology = {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "10ms", "rate": "10Gbit", "node_pair_rate": "100Mbit"},
        "links": [{"from": "west", "to": "east", "node_pair_rate": "1Gbit"}],
    }
    of = sweep_point({"topology": topology})
    assert counted(of, AUTO) == {("east-0", "west-0"): 4}


def test_settings_of_tcp_are_those_of_the_transport() -> None:
    transport = TransportSpec.model_validate({"window": "1MiB", "congestion": "reno", "slow_start_after_idle": False})
    settings = tcp_settings(transport)
    assert (settings.window_bytes, settings.congestion, settings.slow_start_after_idle) == (2**20, "reno", False)
    assert window_bps(AUTO, 0) == float("inf")


MBIT = 10**6


def network(
    hosts: int, *, rate: str = "unlimited", pair: str = "unlimited", intra: str = "unlimited", gpus: int = 1
) -> Topology:
    names = ("east", "central", "west")
    document = {
        "datacenters": [{"name": name, "hosts": hosts, "gpus_per_host": gpus} for name in names],
        "wan": {"rate": rate, "node_pair_rate": pair},
        "intra": {"rate": intra},
    }
    return resolve_topology(TopologySpec.model_validate(document))


def test_each_wan_boundary_demands_its_pair_in_both_directions() -> None:
    topology = network(2, pair="200Mbit", rate="1Gbit")
    demand = network_demand(topology, place_stages(topology, 6).boundaries)
    assert {(pair.source, pair.destination, pair.rate_bps) for pair in demand.wan_pairs} == {
        ("east-1", "central-0", 200 * MBIT),
        ("central-0", "east-1", 200 * MBIT),
        ("central-1", "west-0", 200 * MBIT),
        ("west-0", "central-1", 200 * MBIT),
    }
    assert demand.wan_bps == 800 * MBIT


def test_a_trunk_caps_its_pairs_together_in_each_direction() -> None:
    topology = network(2, pair="200Mbit", rate="300Mbit")
    alternating = place_stages(topology, 4, 1, ["east", "west", "east", "west"])
    # east-0 to west-0, west-0 to east-1, east-1 to west-1: 3 pairs of 200 Mbit/s on a trunk of 300, each way.
    assert network_demand(topology, alternating.boundaries).wan_bps == 2 * 300 * MBIT
    wide = network(2, pair="200Mbit", rate="1Gbit")
    assert network_demand(wide, alternating.boundaries).wan_bps == 2 * 600 * MBIT


def test_a_pair_asks_for_no_more_than_the_trunk() -> None:
    topology = network(1, pair="5Gbit", rate="1Gbit")
    assert {pair.rate_bps for pair in network_demand(topology, place_stages(topology, 3).boundaries).wan_pairs} == {
        1000 * MBIT
    }


def test_inside_a_datacenter_the_largest_single_rate_counts() -> None:
    topology = network(3, pair="100Mbit", intra="500Mbit")
    demand = network_demand(topology, place_stages(topology, 9).boundaries)
    assert len(demand.intra_pairs) == 3 * 2 * 2
    assert demand.intra_bps == 500 * MBIT
    assert demand.total_bps == 500 * MBIT + 4 * 100 * MBIT


def test_unlimited_rates_do_not_count() -> None:
    topology = network(2)
    demand = network_demand(topology, place_stages(topology, 6).boundaries)
    assert len(demand.wan_pairs) == 4
    assert {pair.rate_bps for pair in (*demand.wan_pairs, *demand.intra_pairs)} == {None}
    assert demand.total_bps == 0


def test_stages_on_one_host_have_no_demand() -> None:
    topology = network(1, intra="1Gbit", pair="1Gbit", gpus=4)
    demand = network_demand(topology, place_stages(topology, 3, 1, ["east"] * 3).boundaries)
    assert demand.wan_pairs == demand.intra_pairs == ()
    assert demand.total_bps == 0


def test_a_pair_of_hosts_counts_once_however_many_stages_it_joins() -> None:
    topology = network(1, pair="1Gbit", gpus=2)
    demand = network_demand(topology, place_stages(topology, 4, 1, ["east", "west", "east", "west"]).boundaries)
    assert demand.wan_bps == 2 * 1000 * MBIT


@given(st.integers(2, 9), st.integers(1, 10**10), st.integers(1, 10**10))
def test_the_wan_never_asks_for_more_than_pairs_or_trunks_allow(stages: int, pair_bps: int, trunk_bps: int) -> None:
    topology = network(3, pair=f"{pair_bps}bit", rate=f"{trunk_bps}bit")
    demand = network_demand(topology, place_stages(topology, stages).boundaries)
    assert demand.wan_bps <= sum(pair.rate_bps or 0 for pair in demand.wan_pairs)
    assert demand.wan_bps <= trunk_bps * 2 * len(topology.wan)
    slower = network_demand(topology.dilated(2), place_stages(topology, stages).boundaries)
    assert slower.wan_bps == pytest.approx(demand.wan_bps / 2, abs=len(demand.wan_pairs))


@pytest.mark.parametrize(
    ("cap_mbps", "single_mbps", "connections"),
    [(190, 26, 9), (190, 200, 2), (200, 500, 1), (5000, 293, 19), (100, 1, 64), (110, 110, 2), (100, 110, 1)],
)
def test_connections_fill_the_cap_with_a_tenth_to_spare(cap_mbps: int, single_mbps: int, connections: int) -> None:
    assert connections_to_fill(cap_mbps * MBIT, single_mbps * MBIT) == connections


@given(st.floats(1, 1e12), st.floats(1, 1e12))
def test_connections_suffice_or_are_as_many_as_there_may_be(cap_bps: float, single_bps: float) -> None:
    connections = connections_to_fill(cap_bps, single_bps)
    assert 1 <= connections <= 64
    assert connections == 64 or connections * single_bps >= cap_bps


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_was_not_measured_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        connections_to_fill(rate, 1)
    with pytest.raises(ValueError, match="above 0"):
        connections_to_fill(1, rate)


def test_conditions_of_one_link_change_its_pairs_alone() -> None:
    topology = network(1, pair="100Mbit")
    faster = replace(topology.wan[0], conditions=replace(topology.wan[0].conditions, node_pair_rate_bps=300 * MBIT))
    demand = network_demand(replace(topology, wan=(faster, *topology.wan[1:])), place_stages(topology, 3).boundaries)
    assert demand.wan_bps == 2 * 300 * MBIT + 2 * 100 * MBIT


def two_datacenters(**wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "10ms", "rate": "1Gbit", "node_pair_rate": "100Mbit", **wan},
    }
    return resolve_topology(TopologySpec.model_validate(document))


def held(topology: Topology, window_bytes: int, connections: int) -> tuple[int, int]:
    first, second = place_stages(topology, 2).places
    pair: Pair = (first, second)
    return held_bytes(topology, TcpSettings(window_bytes, "cubic", True), pair, connections)


def test_a_connection_holds_an_eighth_unsent_and_a_quarter_unread() -> None:
    topology = two_datacenters(node_pair_rate="unlimited", rate="unlimited")
    for connections in (1, 4):
        assert held(topology, 2**20, connections) == (2**17, 2**18)


def test_alone_on_a_path_that_holds_three_quarters_of_the_window_or_less_it_holds_half() -> None:
    topology = two_datacenters()
    path_bytes = present(topology.pair_in_flight_bytes("east", "west"))
    narrow, roomy = floor(path_bytes * 4 / 3) - 4, ceil(path_bytes * 4 / 3) + 4
    assert held(topology, roomy, 1)[0] == roomy // 2
    assert held(topology, narrow, 1)[0] == narrow // 8
    assert held(topology, roomy, 2)[0] == roomy // 8
