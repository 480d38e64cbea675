"""Links whose packets are drawn, and links so uneven that acknowledgements need much of the narrower way."""

from typing import Any

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.packet_draws import draws_packets, has_narrow_way, is_impaired
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


def uneven(there: str, back: str, **more: object) -> Topology:
    document = {
        "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
        "links": [
            {"from": "east", "to": "west", "latency": "20ms", "rate": there},
            {"from": "west", "to": "east", "latency": "20ms", "rate": back, **more},
        ],
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


@pytest.mark.parametrize(
    ("back", "is_narrow"), [("100Mbit", False), ("22Mbit", False), ("21Mbit", True), ("1Mbit", True)]
)
def test_a_way_is_narrow_if_a_frame_of_66_bytes_for_two_full_ones_needs_more_than_a_tenth_of_it(
    back: str, is_narrow: bool
) -> None:
    topology = uneven("100Mbit", back)
    assert has_narrow_way(topology, "east", "west") is has_narrow_way(topology, "west", "east") is is_narrow


def test_a_link_without_a_rate_and_one_that_changes_has_no_narrow_way() -> None:
    assert not has_narrow_way(uneven("unlimited", "1Mbit"), "east", "west")
    changing = uneven("100Mbit", "1Mbit", events=[{"at": "1s", "rate": "2Mbit"}])
    assert not has_narrow_way(changing, "east", "west")
    assert not has_narrow_way(uneven("100Mbit", "1Mbit"), "east", "east")


def network(*links: dict[str, Any], **wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "10ms", "rate": "1Gbit", **wan},
        "links": links,
    }
    return resolve_topology(TopologySpec.model_validate(document))


def test_links_impair_in_either_direction_unless_they_change() -> None:
    assert not is_impaired(network(), "east", "west")
    for impaired in (network(loss="0.1%"), network({"from": "west", "to": "east", "jitter": "1ms"})):
        assert is_impaired(impaired, "east", "west")
        assert is_impaired(impaired, "west", "east")
        assert not is_impaired(impaired, "east", "east")
    assert not is_impaired(network(loss="0.1%", events=[{"at": "1s", "latency": "20ms"}]), "east", "west")


@pytest.mark.parametrize(("model", "drawn"), [("auto", True), ("ideal", False)])
def test_packets_are_drawn_where_tcp_crosses_an_impaired_link(model: str, drawn: bool) -> None:
    transport = TransportSpec.model_validate({"model": model})
    assert draws_packets(network(loss="0.1%"), transport) is drawn
    assert not draws_packets(network(), transport)
