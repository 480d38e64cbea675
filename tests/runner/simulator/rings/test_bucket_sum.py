"""All-reduces in buckets beside the last backward: by arithmetic, and against all-reduces after it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.runner.simulator.network.shared_channel import SharedChannel
from wanbed.runner.simulator.rings.bucket_sum import BucketSum
from wanbed.runner.simulator.rings.ring_all_reduce import RingCut, all_reduce_ends_ns
from wanbed.runner.simulator.rings.shared_ring import SharedRing
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.runner.tcp.effects import IDEAL
from wanbed.testbed.network.flow_model.congestion_window import CongestionWindow
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.window import TcpWindow
from wanbed.workloads.transport.ring.buckets import complete_ns

MS = 1_000_000
BUCKETS = {"all_reduce_overlap": True}


def apart(replicas: int, **changes: Any) -> dict[str, Any]:
    """Replicas of a single stage, each in a datacenter of its own."""
    return {
        "topology": {
            "datacenters": [{"name": f"dc{number}", "hosts": 1} for number in range(replicas)],
            "wan": changes.get("wan", {"node_pair_rate": "800Mbit"}),
        },
        "compute": {
            "forward": "10ms",
            "backward": "40ms",
            "activation": "1B",
            "gradient": "4MB",
            **changes.get("compute", {}),
        },
        "training": {
            "stages": 1,
            "pipelines": replicas,
            "microbatches": changes.get("microbatches", 1),
            "iterations": 2,
            "warmup": 0,
        },
        "engine": "simulate",
        "variants": [
            {
                "name": "any",
                "schedule": changes.get("schedule", "dp"),
                "transport": {"model": "ideal", **changes.get("transport", {})},
            }
        ],
    }


def simulated(document: dict[str, Any]) -> Simulation:
    point = sweep_point(document)
    return simulate_variant(point.topology, point.variants[0], 2, effects=IDEAL)


def sums(simulation: Simulation, rank: int = 0, iteration: int = 0) -> list[tuple[int, int, int]]:
    """Return the start, end and size of each all-reduce of a rank."""
    spans = simulation.spans
    own = (spans.kind == KIND_CODES["all_reduce"]) & (spans.rank == rank) & (spans.iteration == iteration)
    return sorted(
        zip(spans.start_ns[own].tolist(), spans.end_ns[own].tolist(), spans.size_bytes[own].tolist(), strict=True)
    )


def test_buckets_that_are_summed_faster_than_computed_begin_when_they_are_complete() -> None:
    # Of two replicas each sends a bucket of 1 MB in 10 ms; the backward of 60 ms completes one every 15 ms.
    simulation = simulated(apart(2, compute={"backward": "60ms"}, transport={**BUCKETS, "bucket": "1MB"}))
    begun_ms = [25, 40, 55, 70]
    assert sums(simulation) == [(begin * MS, (begin + 10) * MS, 1_000_000) for begin in begun_ms]
    assert simulation.windows_ns == [(0, 80 * MS), (80 * MS, 160 * MS)]


def test_buckets_that_are_computed_faster_than_summed_follow_each_other() -> None:
    simulation = simulated(apart(2, compute={"backward": "20ms"}, transport={**BUCKETS, "bucket": "1MB"}))
    assert sums(simulation) == [(begin * MS, (begin + 10) * MS, 1_000_000) for begin in (15, 25, 35, 45)]
    assert simulation.windows_ns[0] == (0, 55 * MS)


def test_only_the_last_microbatch_completes_gradients() -> None:
    simulation = simulated(apart(2, microbatches=3, transport={**BUCKETS, "bucket": "2MB"}))
    assert [start_ns for start_ns, *_ in sums(simulation)] == [(3 * 10 + 2 * 40 + 20) * MS, (3 * 10 + 2 * 40 + 40) * MS]


def test_a_split_backward_completes_gradients_in_its_last_weight_part() -> None:
    split = {"backward": "40ms", "backward_weight": "30ms"}
    simulation = simulated(
        apart(2, schedule="zb-h1", compute=split, microbatches=2, transport={**BUCKETS, "bucket": "1MB"})
        | {"topology": {"datacenters": [{"name": "dc0", "hosts": 2}], "intra": {"latency": "0ms", "rate": "800Mbit"}}}
    )
    spans = simulation.spans
    weights = (spans.kind == KIND_CODES["backward_weight"]) & (spans.rank == 0) & (spans.iteration == 0)
    last_ns = int(np.max(spans.start_ns[weights]))
    assert sums(simulation)[0][0] == complete_ns(last_ns, last_ns + 30 * MS, 0, 4)


def test_a_lone_pipeline_has_nothing_to_sum() -> None:
    alone = apart(1, transport=BUCKETS) | {"topology": {"datacenters": [{"name": "dc0", "hosts": 1}]}}
    assert sums(simulated(alone)) == []


shapes = st.tuples(st.integers(2, 6), st.integers(1, 40), st.integers(1, 200), st.integers(10_000, 5_000_000))


@given(shapes, st.integers(4096, 3_000_000), st.integers(1, 3))
@settings(max_examples=60)
def test_without_latency_overlap_is_never_slower_and_sends_the_same_bytes(
    shape: tuple[int, int, int, int], bucket_bytes: int, microbatches: int
) -> None:
    replicas, forward_ms, backward_ms, gradient_bytes = shape
    compute = {"forward": f"{forward_ms}ms", "backward": f"{backward_ms}ms", "gradient": f"{gradient_bytes}B"}
    after = simulated(apart(replicas, compute=compute, microbatches=microbatches))
    beside = simulated(
        apart(
            replicas,
            compute=compute,
            microbatches=microbatches,
            transport={**BUCKETS, "bucket": f"{bucket_bytes}B"},
        )
    )
    buckets = len(sums(beside))
    # A segment is a whole number of bytes and of nanoseconds.
    rounding_ns = 2 * replicas * buckets * (1 + 8 * 10**9 // 800_000_000)
    for (_, with_ns), (_, without_ns) in zip(beside.windows_ns, after.windows_ns, strict=True):
        assert with_ns <= without_ns + 2 * rounding_ns
    assert sum(size_bytes for *_, size_bytes in sums(beside)) == gradient_bytes
    sent = [sum(int(pair.wire_bytes[-1]) for pair in one.traffic) for one in (beside, after)]
    assert sent[0] == pytest.approx(sent[1], abs=2 * 2 * replicas * replicas * buckets)


@given(shapes, st.integers(1, 10))
@settings(max_examples=60)
def test_equal_replicas_without_latency_take_the_longer_of_computing_and_summing(
    shape: tuple[int, int, int, int], buckets: int
) -> None:
    replicas, forward_ms, backward_ms, part_bytes = shape
    # Whole buckets of whole segments, each a whole number of nanoseconds at 800 Mbit/s.
    bucket_bytes = max(part_bytes, 8192) // replicas * replicas
    forward_ns, backward_ns = forward_ms * MS, buckets * backward_ms * MS
    compute = {
        "forward": f"{forward_ns}ns",
        "backward": f"{backward_ns}ns",
        "gradient": f"{buckets * bucket_bytes}B",
    }
    simulation = simulated(apart(replicas, compute=compute, transport={**BUCKETS, "bucket": f"{bucket_bytes}B"}))
    ring_ns = 2 * (replicas - 1) * bucket_bytes // replicas * 10
    interval_ns = backward_ns // buckets
    expected_ns = forward_ns + max(interval_ns + buckets * ring_ns, backward_ns + ring_ns)
    assert simulation.windows_ns[0] == (0, expected_ns)


def window(latency_ns: int, *, narrow: bool) -> TcpWindow:
    rtt_ns = 2 * latency_ns
    if not narrow or not latency_ns:
        return TcpWindow(rtt_ns, None, None)
    return TcpWindow(rtt_ns, 60_000, CongestionWindow(1, 14_480, rtt_ns, None))


@given(
    st.lists(
        st.tuples(st.integers(0, 10**8), st.integers(0, 10**8), st.integers(10**6, 10**9)), min_size=2, max_size=4
    ),
    st.integers(1, 4),
    st.integers(1, 10**5),
    st.integers(0, 10**7),
    st.booleans(),
)
def test_buckets_on_a_shared_ring_take_as_long_as_on_a_private_one(
    replicas: list[tuple[int, int, int]], buckets: int, size_bytes: int, latency_ns: int, narrow: bool
) -> None:
    """The next bucket's first segments follow the last ones of a bucket on the same channel."""
    rates_bps = [rate_bps for *_, rate_bps in replicas]
    cut = RingCut(len(replicas), -(-size_bytes // len(replicas)), 1000)
    lines = [Line(rate_bps, latency_ns, headers=False) for rate_bps in rates_bps]
    private = [PrivateChannel(line, window(latency_ns, narrow=narrow)) for line in lines]
    expected, free_ns = [], [0] * len(replicas)
    for bucket in range(buckets):
        ready_ns = [complete_ns(start, start + length, bucket, buckets) for start, length, _ in replicas]
        free_ns = all_reduce_ends_ns([*map(max, ready_ns, free_ns)], private, cut)
        expected.append(free_ns)

    events = EventQueue()
    capacity = SharedCapacity(events, dict(enumerate(rates_bps)))
    channels = [
        SharedChannel(line, window(latency_ns, narrow=narrow), NodePairFlow(number, [number]), capacity)
        for number, line in enumerate(lines)
    ]
    ring = SharedRing(channels, [1] * len(replicas), cut, events)
    found = [[0] * len(replicas) for _ in range(buckets)]

    def begin(now_ns: int, position: int) -> None:
        def join(bucket: int, joined_ns: int, done: Any) -> None:
            ring.join(bucket, position, joined_ns, done)

        def summed(bucket: int, _: int, end_ns: int) -> None:
            found[bucket][position] = end_ns

        BucketSum(events, buckets, join, summed).begin(now_ns, now_ns + replicas[position][1])

    for position, (start_ns, *_) in enumerate(replicas):
        events.at(start_ns, begin, position)
    while events.handle_next_instant():
        pass
    assert found == expected
