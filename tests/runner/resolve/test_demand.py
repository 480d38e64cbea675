from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.resolve.connections import connections_to_fill, network_demand
from wanbed.runner.resolve.placement import place_stages
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

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
