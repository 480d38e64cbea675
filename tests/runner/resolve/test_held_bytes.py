"""Bytes that a connection holds: not sent yet, or not read yet."""

from math import ceil, floor
from typing import Any

import pytest

from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.connections import held_bytes
from wanbed.runner.resolve.packet_draws import draws_packets, is_impaired
from wanbed.runner.resolve.placement import Pair, place_stages
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


def network(*links: dict[str, Any], **wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "10ms", "rate": "1Gbit", "node_pair_rate": "100Mbit", **wan},
        "links": links,
    }
    return resolve_topology(TopologySpec.model_validate(document))


def held(topology: Topology, window_bytes: int, connections: int) -> tuple[int, int]:
    first, second = place_stages(topology, 2).places
    pair: Pair = (first, second)
    return held_bytes(topology, TcpSettings(window_bytes, "cubic", True), pair, connections)


def test_a_connection_holds_an_eighth_unsent_and_a_quarter_unread() -> None:
    topology = network(node_pair_rate="unlimited", rate="unlimited")
    for connections in (1, 4):
        assert held(topology, 2**20, connections) == (2**17, 2**18)


def test_alone_on_a_path_that_holds_three_quarters_of_the_window_or_less_it_holds_half() -> None:
    topology = network()
    path_bytes = topology.pair_in_flight_bytes("east", "west")
    assert path_bytes is not None
    narrow, roomy = floor(path_bytes * 4 / 3) - 4, ceil(path_bytes * 4 / 3) + 4
    assert held(topology, roomy, 1)[0] == roomy // 2
    assert held(topology, narrow, 1)[0] == narrow // 8
    assert held(topology, roomy, 2)[0] == roomy // 8


def test_links_impair_in_either_direction_unless_they_change() -> None:
    assert not is_impaired(network(), "east", "west")
    for impaired in (network(loss="0.1%"), network({"from": "west", "to": "east", "jitter": "1ms"})):
        assert is_impaired(impaired, "east", "west")
        assert is_impaired(impaired, "west", "east")
        assert not is_impaired(impaired, "east", "east")
    changing = network(loss="0.1%", events=[{"at": "1s", "latency": "20ms"}])
    assert not is_impaired(changing, "east", "west")


@pytest.mark.parametrize(("model", "drawn"), [("tcp", True), ("ideal", False)])
def test_packets_are_drawn_where_tcp_crosses_an_impaired_link(model: str, drawn: bool) -> None:
    transport = TransportSpec.model_validate({"model": model})
    assert draws_packets(network(loss="0.1%"), transport) is drawn
    assert not draws_packets(network(), transport)
