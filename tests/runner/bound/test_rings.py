"""The least times of all-reduces, worked out by hand: what a hop carries, and the latencies of a segment's way."""

from typing import Any

import pytest

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.bound.resources import Resources
from wanbed.runner.bound.rings import RingTimes, ring_times
from wanbed.runner.resolve.connection_count import count_connections

MS = 1_000_000


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


def test_a_small_segment_makes_four_hops_one_after_the_other() -> None:
    assert ms(times(gradient="12kB")) == (40, 40, 0)


def test_a_long_hop_is_on_the_way_of_every_segment_but_not_always_twice() -> None:
    longer = {"between": ["dc0", "dc1"], "latency": "50ms"}
    # Of four hops of three, one is made twice: the long one for one segment, once for the others.
    assert ms(times(gradient="12kB", links=[longer])) == (120, 80, 0)


def test_buckets_begin_while_the_last_backward_computes() -> None:
    buckets: dict[str, Any] = {"all_reduce_overlap": True, "bucket": "6MB"}
    assert ms(times(last_backward_ms=100, **buckets)) == (1610 - 50, 1600 - 50, 50)
    # Of a long one only the last bucket is left.
    assert ms(times(last_backward_ms=10_000, **buckets)) == (810, 800, 5000)


def test_a_hierarchical_all_reduce_makes_its_passes_one_after_the_other() -> None:
    found = times(datacenters=2, seats=2, all_reduce="hierarchical")
    # Half of the gradients there and back inside, half of that there and back across.
    assert ms(found) == (601 + 610 + 601, 601 + 610 + 601, 0)
    assert sorted(bits for _, bits in found.loads) == [48e6] * 4 + [96e6] * 4
    assert all(bits == (96e6 if one.datacenter == other.datacenter else 48e6) for (one, other), bits in found.loads)


def test_the_passes_of_small_segments_take_their_latencies() -> None:
    # Three hops of 1 ms inside, twice, and twice two of 10 ms across.
    assert ms(times(datacenters=3, seats=4, gradient="12kB", all_reduce="hierarchical"))[0] == pytest.approx(
        2 * 3 + 4 * 10, abs=0.1
    )


def test_the_buckets_of_a_hierarchical_all_reduce_follow_each_other() -> None:
    buckets: dict[str, Any] = {"all_reduce": "hierarchical", "all_reduce_overlap": True, "bucket": "6MB"}
    # A bucket takes half as long; the one before it is partly hidden.
    one_ms = 301 + 310 + 301
    assert ms(times(datacenters=2, seats=2, last_backward_ms=100, **buckets)) == (2 * one_ms - 50, 2 * one_ms - 50, 50)
    hidden = times(datacenters=2, seats=2, last_backward_ms=10_000, **buckets)
    assert ms(hidden) == (one_ms, one_ms, 5000)


@pytest.mark.parametrize(("gradient", "none"), [("2B", True), ("3B", False)])
def test_nobody_waits_for_empty_segments(gradient: str, none: bool) -> None:
    assert (times(gradient=gradient) == RingTimes()) is none
