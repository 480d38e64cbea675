"""Times that bytes take over windows, node pairs, trunks and ports, worked out by hand."""

from typing import Any

import pytest

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.bound.resources import Resource, Resources

MS = 1_000_000


def test_bits_take_their_share_of_the_rate_but_those_that_are_free() -> None:
    assert Resource("line", bits_per_ns=2.0).duration_ns(1) == 0.5
    window = Resource("windows", bits_per_ns=2.0, free_bits=100)
    assert [window.duration_ns(bits) for bits in (99, 100, 110)] == [0, 0, 5]


def resources(model: str = "tcp", **transport: Any) -> tuple[Resources, list[Any]]:
    """Two stages 10 ms apart, over 1 Gbit/s a node pair, 800 Mbit/s the trunk and 8 Gbit/s a port."""
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}],
            "intra": {"latency": "1ms", "rate": "8Gbit"},
            "wan": {"latency": "10ms", "jitter": "2ms", "rate": "800Mbit", "node_pair_rate": "1Gbit"},
        },
        "compute": {"forward": "10ms", "activation": "1B", "gradient": "1B"},
        "training": {"stages": 3, "microbatches": 1},
        "variants": [{"name": "v", "schedule": "gpipe", "transport": {"model": model, **transport}}],
        "engine": "simulate",
    }
    point = sweep_point(document)
    variant = point.variants[0]
    return Resources(point.topology, variant, {("east-1", "west-0"): 3}), list(variant.placement.pipelines[0])


def test_across_the_wan_bytes_cross_windows_port_node_pair_and_trunk() -> None:
    found, (_, east, west) = resources(connections=3, window="1MiB")
    assert [each.name for each in found.between((east, west))] == [
        "windows of 3 connections east-1 to west-0",
        "port of west-0",
        "node pair east-1 to west-0",
        "trunk east to west",
    ]
    windows, port, pair, trunk = found.between((east, west))
    assert [each.bits_per_ns for each in (port, pair, trunk)] == [8, 1, 0.8]
    # Jitter may take 2 ms off each way: three windows in a round trip of 16 ms.
    assert found.latency_ns((east, west)) == 8 * MS
    assert windows.free_bits == 3 * 8 * 2**20
    assert windows.bits_per_ns == pytest.approx(3 * 8 * 2**20 / (16 * MS))
    assert found.buffered_bits((west, east)) == 3 * 8 * 2**20, "connections are those of both ways"


def test_inside_a_datacenter_there_are_neither_node_pair_nor_trunk_and_one_connection_unless_more_are_known() -> None:
    found, (first, second, _) = resources(connections=3, window="1MiB")
    assert [each.name for each in found.between((first, second))] == [
        "windows of 1 connection east-0 to east-1",
        "port of east-1",
    ]
    assert found.between((first, first)) == ()
    assert found.latency_ns((first, first)) == 0


def test_an_ideal_transport_has_no_windows_and_leaves_nothing_in_buffers() -> None:
    found, (_, east, west) = resources("ideal")
    assert [each.name.split()[0] for each in found.between((east, west))] == ["port", "node", "trunk"]
    assert found.buffered_bits((east, west)) == 0


def test_a_way_takes_as_long_as_its_slowest_resource() -> None:
    found, (_, east, west) = resources("ideal")
    ends = (east, west)
    way = found.way(ends, [(each, 8e6) for each in found.between(ends)], 5)
    assert (way.latency_ns, way.transfer_ns, way.busy_ns) == pytest.approx((8 * MS, 10 * MS, 50 * MS))
    assert found.way(ends, [], 5).busy_ns == 0
