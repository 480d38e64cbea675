"""Times that bytes take over windows, node pairs, trunks and ports, worked out by hand."""

from typing import Any

import pytest

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.bound.resources import Resource, Resources, RingTimes, ring_times
from wanbed.runner.resolve.connections import count_connections

MS = 1_000_000


def test_bits_take_their_share_of_the_rate_but_those_that_are_free() -> None:
    assert Resource("line", bits_per_ns=2.0).duration_ns(1) == 0.5
    window = Resource("windows", bits_per_ns=2.0, free_bits=100)
    assert [window.duration_ns(bits) for bits in (99, 100, 110)] == [0, 0, 5]


def resources(model: str = "auto", **transport: Any) -> tuple[Resources, list[Any]]:
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


def times(
    *,
    datacenters: int = 3,
    seats: int = 1,
    gradient: str = "12MB",
    links: Any = (),
    last_backward_ms: int = 0,
    **transport: Any,
) -> RingTimes:
    """The times of a ring of replicas over lines of 80 Mbit/s: 1 ms inside a datacenter, 10 ms across."""
    document = {
        "topology": {
            "datacenters": [{"name": f"dc{number}", "hosts": seats} for number in range(datacenters)],
            "intra": {"latency": "1ms", "rate": "80Mbit"},
            **({"wan": {"latency": "10ms", "node_pair_rate": "80Mbit"}} if datacenters > 1 else {}),
            "links": list(links),
        },
        "compute": {"forward": "1ms", "activation": "1B", "gradient": gradient},
        "training": {"stages": 1, "pipelines": datacenters * seats, "microbatches": 1, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "dp", "transport": {"model": "ideal", **transport}}],
    }
    point = sweep_point(document)
    variant = point.variants[0]
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    return ring_times(variant, Resources(point.topology, variant, connections), 0, last_backward_ms * MS)


def ms(found: RingTimes) -> tuple[float, float, float]:
    first, last, before = (
        round(each / MS, 3) for each in (found.after_first_ns, found.after_last_ns, found.begins_before_ns)
    )
    return first, last, before


def test_a_hop_carries_four_thirds_of_the_gradients_of_three_replicas() -> None:
    # 16 MB at 10 MB a second, and one latency until all of it has arrived.
    found = times()
    assert ms(found) == (1610, 1600, 0)
    assert [bits for _, bits in found.loads] == [128e6] * 3
    assert len({hop for hop, _ in found.loads}) == 3


BUCKETS: dict[str, Any] = {"all_reduce_overlap": True, "bucket": "6MB"}
NESTED: dict[str, Any] = {"datacenters": 2, "seats": 2, "all_reduce": "hierarchical", **BUCKETS}
NESTED_BUCKET_MS = 301 + 310 + 301


@pytest.mark.parametrize(
    ("changes", "expected_ms"),
    [
        pytest.param({"gradient": "12kB"}, (40, 40, 0), id="a small segment makes four hops one after the other"),
        # Of four hops of three, one is made twice: the long one for one segment, once for the others.
        pytest.param(
            {"gradient": "12kB", "links": [{"between": ["dc0", "dc1"], "latency": "50ms"}]},
            (120, 80, 0),
            id="a long hop is on the way of every segment but not always twice",
        ),
        pytest.param(
            {"last_backward_ms": 100, **BUCKETS},
            (1610 - 50, 1600 - 50, 50),
            id="buckets begin while the last backward computes",
        ),
        pytest.param(
            {"last_backward_ms": 10_000, **BUCKETS}, (810, 800, 5000), id="of a long one only the last bucket is left"
        ),
        # A bucket takes half as long; the one before it is partly hidden.
        pytest.param(
            {"last_backward_ms": 100, **NESTED},
            (2 * NESTED_BUCKET_MS - 50, 2 * NESTED_BUCKET_MS - 50, 50),
            id="buckets of a hierarchical all-reduce follow each other",
        ),
        pytest.param(
            {"last_backward_ms": 10_000, **NESTED},
            (NESTED_BUCKET_MS, NESTED_BUCKET_MS, 5000),
            id="the last bucket of a hierarchical all-reduce",
        ),
    ],
)
def test_segments_and_buckets_follow_each_other_around(
    changes: dict[str, Any], expected_ms: tuple[float, float, float]
) -> None:
    assert ms(times(**changes)) == expected_ms


def test_a_hierarchical_all_reduce_makes_its_passes_one_after_the_other() -> None:
    found = times(datacenters=2, seats=2, all_reduce="hierarchical")
    # Half of the gradients there and back inside, half of that there and back across.
    assert ms(found) == (601 + 610 + 601, 601 + 610 + 601, 0)
    assert sorted(bits for _, bits in found.loads) == [48e6] * 4 + [96e6] * 4
    assert all(bits == (96e6 if one.datacenter == other.datacenter else 48e6) for (one, other), bits in found.loads)


def test_a_butterfly_sends_a_part_and_a_sum_over_each_hop() -> None:
    # Of 12 MB and 3 replicas 8 MB between each two, at 10 MB a second, and a latency.
    found = times(all_reduce="butterfly")
    assert ms(found) == (810, 800 + 10, 0)
    assert [bits for _, bits in found.loads] == [64e6] * 6
    # Small parts take the way there and back; the last replica may be one with short ways only.
    assert ms(times(gradient="12kB", all_reduce="butterfly")) == pytest.approx((20, 20, 0), abs=0.1)
    assert ms(times(last_backward_ms=10_000, all_reduce="butterfly", **BUCKETS))[0] == 410


def test_a_chain_sends_all_to_the_first_and_then_all_from_it() -> None:
    # Of 12 MB over three hops of 10 MB a second and 10 ms: two hops there, two back, each hop's bytes once or twice.
    found = times(all_reduce="chain", model="ideal")
    assert (*ms(found)[:2], found.own_ns / MS) == (2 * 1220, 1200, 1220)
    assert [bits for _, bits in found.loads] == [96e6, 192e6, 96e6]
    # The first replica leaves a window of what it sends in its buffers.
    assert ms(times(all_reduce="chain", model="auto", window="1MiB"))[1] == pytest.approx(1200 - 2**20 / 1e4, abs=1)


def test_the_passes_of_small_segments_take_their_latencies() -> None:
    # Three hops of 1 ms inside, twice, and twice two of 10 ms across.
    assert ms(times(datacenters=3, seats=4, gradient="12kB", all_reduce="hierarchical"))[0] == pytest.approx(
        2 * 3 + 4 * 10, abs=0.1
    )


@pytest.mark.parametrize(("gradient", "none"), [("2B", True), ("3B", False)])
def test_nobody_waits_for_empty_segments(gradient: str, none: bool) -> None:
    assert (times(gradient=gradient) == RingTimes()) is none
