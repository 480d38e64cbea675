from typing import Any

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.relay.model.lanes import OwnLane, RelayLane, SharedLane
from wanbed.testbed.relay.model.relay_network import lanes
from wanbed.testbed.relay.model.timeline import Timeline


def made(wan: dict[str, str], hosts: int = 2, **topology: Any) -> dict[tuple[str, str], RelayLane]:
    document = {
        "datacenters": [{"name": name, "hosts": hosts} for name in ("east", "west")],
        "wan": {"latency": "20ms", **wan},
        **topology,
    }
    return lanes(resolve_topology(parse_model(TopologySpec, document, "test")), Timeline())


def shared(found: dict[tuple[str, str], RelayLane]) -> set[tuple[str, str]]:
    return {ends for ends, lane in found.items() if isinstance(lane, SharedLane)}


def test_every_host_has_a_lane_to_every_other_with_latency_and_rate_of_the_path() -> None:
    found = made({"rate": "1Gbit", "node_pair_rate": "100Mbit"})
    assert len(found) == 12
    assert (found["east-0", "west-1"].line.rate_bps, found["east-0", "west-1"].line.latency_ns) == (10**8, 20_000_000)
    assert found["east-0", "east-1"].line.latency_ns < 1_000_000


def test_a_trunk_is_shared_only_if_its_node_pairs_can_fill_it() -> None:
    assert shared(made({"rate": "1Gbit", "node_pair_rate": "250Mbit"})) == set()
    across = {(a, b) for a, b in made({}) if a[:4] != b[:4]}
    assert shared(made({"rate": "1Gbit", "node_pair_rate": "251Mbit"})) == across


def test_a_port_is_shared_by_all_who_send_to_its_host() -> None:
    found = made({"rate": "10Gbit", "node_pair_rate": "100Mbit"}, intra={"rate": "1Gbit"})
    assert shared(found) == set(found)
    resources = {lane.resources for ends, lane in found.items() if ends[1] == "east-0" and isinstance(lane, SharedLane)}
    assert len(resources) == 1


@pytest.mark.parametrize("hosts", [1, 3])
def test_without_rates_nothing_is_shared(hosts: int) -> None:
    found = made({}, hosts)
    assert all(isinstance(lane, OwnLane) and lane.line.rate_bps is None for lane in found.values())
