"""Rings on shared lines: alone they take the computed time, together the time that the shared line allows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.variants import all_reduces_ns
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.events import run_all
from tests.support.simulator.simulation_of import simulation_of
from wanbed.flow.changing_path import ChangingPath, constant
from wanbed.flow.channel import PrivateChannel
from wanbed.flow.congestion_window import CongestionWindow
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.shared_channel import ChangingChannel, SharedChannel
from wanbed.flow.striping import Striping
from wanbed.flow.window import TcpWindow
from wanbed.runner.resolve.equal_parts import equal_parts
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.rings.ring_all_reduce import (
    BucketSum,
    RingCut,
    SharedRing,
    SparseRing,
    all_reduce_ends_ns,
    awaits_room,
)
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.workloads.transport.ring_round import complete_ns

MEGABYTE = 10**6


def ring(rates_bps: list[int | None], latency_ns: int = 0) -> list[PrivateChannel]:
    return [
        PrivateChannel(Line(rate, latency_ns, headers=False), TcpWindow(2 * latency_ns, None, None))
        for rate in rates_bps
    ]


@pytest.mark.parametrize("replicas", [2, 3, 5, 8])
def test_on_equal_lines_it_takes_twice_the_share_of_the_others(replicas: int) -> None:
    # 8 Mbit/s carry a megabyte a second: each replica sends 2 (P - 1)/P of the data.
    size_bytes = replicas * MEGABYTE
    ends_ns = all_reduce_ends_ns([0] * replicas, ring([8 * MEGABYTE] * replicas), RingCut.of(size_bytes, replicas))
    assert ends_ns == [2 * (replicas - 1) * 10**9] * replicas


def test_where_the_rate_costs_nothing_every_step_takes_a_latency() -> None:
    assert all_reduce_ends_ns([0] * 4, ring([None] * 4, 50), RingCut.of(MEGABYTE, 4)) == [6 * 50] * 4


def test_a_latency_shorter_than_a_segment_counts_once() -> None:
    # Segments of a second, chunk by chunk: the next step begins while the last one is still on its way.
    assert (
        all_reduce_ends_ns([0] * 2, ring([8 * MEGABYTE] * 2, 10**8), RingCut.of(2 * MEGABYTE, 2))
        == [2 * 10**9 + 10**8] * 2
    )


def test_a_segments_first_chunk_and_its_rest_are_dealt_to_connections_by_whole_chunks() -> None:
    cut = RingCut.of(2 * 10 * MEGABYTE, 2)
    first_bytes, _ = cut.parts_bytes
    assert cut.stripings(4) == (Striping(4, 1, first_bytes), Striping(4, cut.chunks - 1, cut.chunk_bytes))
    assert cut.stripings(1) == (None, None)


def test_everybody_waits_for_the_last_to_begin() -> None:
    late_ns = 5 * 10**9
    ends_ns = all_reduce_ends_ns([0, late_ns, 0], ring([8 * MEGABYTE] * 3), RingCut.of(3 * MEGABYTE, 3))
    assert max(ends_ns) == late_ns + 4 * 10**9
    assert min(ends_ns) > late_ns


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(10**6, 10**9)), min_size=2, max_size=6),
    st.integers(1, 10**7),
    st.integers(0, 10**8),
)
def test_a_ring_waits_for_the_last_to_begin_and_for_the_slowest_link(
    replicas: list[tuple[int, int]], size_bytes: int, latency_ns: int
) -> None:
    starts_ns = [start_ns for start_ns, _ in replicas]
    ends_ns = all_reduce_ends_ns(
        starts_ns, ring([rate for _, rate in replicas], latency_ns), RingCut.of(size_bytes, len(replicas))
    )
    assert min(ends_ns) >= max(starts_ns)
    count = len(replicas)
    for (start_ns, rate), end_ns in zip(replicas, ends_ns, strict=True):
        assert end_ns >= start_ns + 2 * (count - 1) * (size_bytes // count) * 8 * 10**9 // rate


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(10**6, 10**9)), min_size=1, max_size=3),
    st.integers(2, 4),
    st.integers(0, 10**8),
)
def test_a_ring_that_repeats_is_known_from_one_of_its_repetitions(
    replicas: list[tuple[int, int]], times: int, latency_ns: int
) -> None:
    starts_ns, rates_bps = ([*column] for column in zip(*replicas, strict=True))
    cut = RingCut.of(MEGABYTE, len(replicas) * times)
    whole = all_reduce_ends_ns(starts_ns * times, ring(rates_bps * times, latency_ns), cut)
    assert whole == all_reduce_ends_ns(starts_ns, ring(rates_bps, latency_ns), cut) * times


CHUNK_BYTES = 1000


def window(latency_ns: int, *, narrow: bool) -> TcpWindow:
    rtt_ns = 2 * latency_ns
    if not narrow or not latency_ns:
        return TcpWindow(rtt_ns, None, None)
    return TcpWindow(rtt_ns, 60_000, CongestionWindow(1, 14_480, rtt_ns, None))


def joined_ns(ring: SharedRing, events: EventQueue, starts_ns: list[int]) -> list[int]:
    """Let replicas join a ring at these times. Return when each has the sum."""
    ends_ns: dict[int, int] = {}

    def join(now_ns: int, position: int) -> None:
        ring.join(0, position, now_ns, lambda _, end_ns: ends_ns.update({position: end_ns}))

    for position, start_ns in enumerate(starts_ns):
        events.at(start_ns, join, position)
    run_all(events)
    return [ends_ns[position] for position in range(len(starts_ns))]


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(10**6, 10**9)), min_size=2, max_size=5),
    st.integers(1, 10**6),
    st.integers(0, 10**8),
    st.booleans(),
)
def test_a_ring_without_other_traffic_takes_as_long_as_a_private_ring(
    replicas: list[tuple[int, int]], size_bytes: int, latency_ns: int, narrow: bool
) -> None:
    starts_ns = [start_ns for start_ns, _ in replicas]
    connections = [1] * len(replicas)
    lines = [Line(rate_bps, latency_ns, headers=False) for _, rate_bps in replicas]
    private = [PrivateChannel(line, window(latency_ns, narrow=narrow)) for line in lines]
    cut = RingCut(len(replicas), -(-size_bytes // len(replicas)), CHUNK_BYTES)
    expected = all_reduce_ends_ns(starts_ns, private, cut, connections)

    events = EventQueue()
    capacity = SharedCapacity(events, {number: rate for number, (_, rate) in enumerate(replicas)})
    channels = [
        SharedChannel(line, window(latency_ns, narrow=narrow), NodePairFlow(number, [number]), capacity)
        for number, line in enumerate(lines)
    ]
    assert joined_ns(SharedRing(channels, connections, cut, events), events, starts_ns) == expected


def rings_over_one_trunk(rings: int, *, trunk: str, hosts_each: int) -> dict[str, Any]:
    """As many stages as rings, one replica of each in either datacenter: each ring crosses the trunk, both ways."""
    return {
        "topology": {
            "datacenters": [
                {"name": name, "hosts": hosts_each, "gpus_per_host": rings // hosts_each} for name in ("east", "west")
            ],
            "wan": {"latency": "0ms", "rate": trunk},
        },
        "compute": {"forward": "1ns", "backward": "1ns", "activation": "1B", "gradient": "1GB"},
        "training": {"stages": rings, "pipelines": 2, "microbatches": 1, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [
            {
                "name": "apart",
                "schedule": "1f1b",
                "placement": [["east"] * rings, ["west"] * rings],
                "transport": {"model": "ideal"},
            }
        ],
    }


@pytest.mark.parametrize("rings", [1, 2, 4, 8])
@pytest.mark.parametrize("one_host", [True, False])
def test_rings_share_the_trunk_that_they_cross(rings: int, one_host: bool) -> None:
    simulation = simulation_of(
        rings_over_one_trunk(rings, trunk="10Gbit", hosts_each=1 if one_host else rings), 1, effects=IDEAL
    )
    # Two replicas send all of a gigabyte each: 0.8 s of 10 Gbit/s for every ring.
    assert max(all_reduces_ns(simulation)) / 1e9 == pytest.approx(0.8 * rings, rel=1e-3)


def test_a_ring_slows_the_activations_on_its_line_and_they_slow_it() -> None:
    """Both cross a node pair of 80 Mbit/s, one way: while both send, each has half of it."""
    document = rings_over_one_trunk(1, trunk="80Mbit", hosts_each=1)
    document["topology"]["datacenters"] = [{"name": name, "hosts": 1, "gpus_per_host": 2} for name in ("east", "west")]
    document["compute"] |= {"gradient": ["1B", "10MB"], "activation": "20MB"}
    document["training"] |= {"stages": 2, "microbatches": 2}
    document["variants"][0]["placement"] = [["east", "west"], ["west", "east"]]
    alone = {**document, "compute": {**document["compute"], "activation": "1B"}}

    def ring_s(of: dict[str, Any]) -> float:
        return max(all_reduces_ns(simulation_of(of, 1, effects=IDEAL))) / 1e9

    assert ring_s(alone) == pytest.approx(1.0, rel=1e-3)
    assert ring_s(document) > 1.5


def ring_ends_ns(latencies_ms: list[int], cut: RingCut) -> list[int]:
    """Return when each replica of a ring over lines of these latencies and unlimited rate ends, all ready at once."""
    events = EventQueue()
    channels = [
        PrivateChannel(Line(None, latency_ms * 1_000_000, headers=False), TcpWindow(0, None, None))
        for latency_ms in latencies_ms
    ]
    return joined_ns(SharedRing(channels, [1] * len(channels), cut, events), events, [0] * len(channels))


def test_a_step_waits_until_it_is_known_that_there_is_room_for_it() -> None:
    # Six segments may be on their way. What the third replica sends at 0 it knows to be used after 2 x 80 ms, and its
    # seventh segment waits for that, although it has come round in 85: the way of 168 ms takes 160 + 80 + 3.
    assert max(ring_ends_ns([1, 1, 80, 1, 1, 1], RingCut.of(60, 6))) == 243_000_000
    # Where a segment comes round no sooner than word of room does, there is room: 4 x 80 + 6 ms.
    assert max(ring_ends_ns([1, 1, 80, 1, 80, 1], RingCut.of(60, 6))) == 326_000_000


@pytest.mark.parametrize(("size_bytes", "holds"), [(60 * 2**20, True), (200 * 2**20, False)])
def test_room_is_waited_for_where_the_window_holds_all_chunks(size_bytes: int, holds: bool) -> None:
    assert RingCut.of(size_bytes, 4).window_holds_all == holds


def test_a_replica_is_through_when_windows_have_let_its_last_bytes_out() -> None:
    # Segments of 0.5 s. The second replica, ready at 0.3 s, has the sum when the first one's two have come, begun at 0
    # and, after a chunk of its own, at 0.56; its own last one is then still waiting for the line, until 1.3 s.
    latency_ns, cut = 10**6, RingCut.of(10**6, 2)
    line = Line(8 * 10**6, latency_ns, headers=False)

    def ends_ns(window_bytes: int | None) -> list[int]:
        channels = [PrivateChannel(line, TcpWindow(2 * latency_ns, window_bytes, None)) for _ in range(2)]
        return all_reduce_ends_ns([0, 3 * 10**8], channels, cut)

    chunk_ns = 262_144_000
    assert ends_ns(10**7) == [1_300_000_000 + latency_ns, 300_000_000 + chunk_ns + 500_000_000 + 2 * latency_ns]
    # Without a window nothing shows when the line is used by others.
    assert ends_ns(None)[1] >= 1_300_000_000


def lines(*latencies_ms: int) -> list[Line]:
    return [Line(10**9, latency_ms * 10**6, headers=False) for latency_ms in latencies_ms]


def test_a_step_may_wait_for_room_where_one_round_trip_is_longer_than_the_way_around() -> None:
    whole, in_parts = RingCut.of(60, 4), RingCut.of(200 * 2**20, 4)
    for latencies_ms, awaits in (((100, 50, 25, 25), False), ((100, 50, 25, 24), True), ((10, 10, 10, 10), False)):
        assert awaits_room(lines(*latencies_ms), whole) == awaits
        # A window that does not hold all chunks is another limit.
        assert not awaits_room(lines(*latencies_ms), in_parts)
    # Lines that repeat around the ring: twice 60 ms around, against 100 there and back.
    assert not awaits_room(lines(50, 10), whole)
    assert awaits_room(lines(50, 10), RingCut.of(60, 2))


def test_over_links_that_change_a_step_may_always_wait_for_room() -> None:
    path = ChangingPath(
        constant(LinkConditions(latency_ns=10**7)), constant(LinkConditions(latency_ns=10**7)), None, False
    )
    capacity = SharedCapacity(EventQueue(), {0: 10**9})
    flow, free = NodePairFlow(0, [0]), TcpWindow(0, None, None)
    changing = ChangingChannel(path, free, flow, capacity, None)
    still = [SharedChannel(line, free, flow, capacity) for line in lines(10, 10, 10)]
    for channels, size_bytes, awaits in (
        ([*still, changing], 60, True),
        ([*still, changing], 200 * 2**20, False),
        ([*still, still[0]], 60, False),
    ):
        assert SharedRing(channels, [1] * 4, RingCut.of(size_bytes, 4), capacity.events).awaits_room == awaits


MS = 1_000_000


def ends_ms(
    latencies_ms: list[int], size_bytes: int, *iterations: list[int], steps: int | None = None
) -> list[list[float]]:
    """Return when each replica has the result, given when it is ready in each iteration; by default of a whole sum."""
    events = EventQueue()
    channels = [
        PrivateChannel(Line(None, latency_ms * MS, headers=False), TcpWindow(2 * latency_ms * MS, None, None))
        for latency_ms in latencies_ms
    ]
    ring = SparseRing(channels, size_bytes, steps or 2 * (len(channels) - 1), events)
    found = [[-1.0] * len(latencies_ms) for _ in iterations]

    def join(now_ns: int, what: tuple[int, int]) -> None:
        iteration, position = what

        def done(_: int, end_ns: int) -> None:
            found[iteration][position] = end_ns / MS

        ring.join(iteration, position, now_ns, done)

    for iteration, ready_ms in enumerate(iterations):
        for position, ready in enumerate(ready_ms):
            events.at(ready * MS, join, (iteration, position))
    run_all(events)
    return found


@pytest.mark.parametrize(
    ("latencies_ms", "size_bytes", "steps", "iterations", "ends"),
    [
        # The last of three replicas has the byte.
        pytest.param([10, 10, 10], 1, None, [[0, 0, 0]], [[40, 20, 30]], id="a byte goes around"),
        # It ends at the second replica, which has the sum then; the first one has only sent its part on.
        pytest.param([10, 10, 10], 1, 2, [[0, 0, 0]], [[10, 20, 0]], id="a reduce-scatter ends half way"),
        # The byte waits there, and the first, which has sent to it, waits for the second round.
        pytest.param([10, 10, 10], 1, None, [[0, 100, 0]], [[120, 100, 110]], id="who is late holds up what passes it"),
        pytest.param([10, 10, 10], 2, None, [[0, 0, 0]], [[40, 30, 40]], id="two bytes are under way side by side"),
        # What the last replica sends is used 80 ms later, which it knows after 160: until then the byte waits, which
        # has come round in 82, and so does that of the next sum, for what was sent at 160 and used at 240.
        pytest.param(
            [1, 1, 80],
            1,
            None,
            [[0, 0, 0], [250, 250, 250]],
            [[240, 81, 160], [560, 401, 480]],
            id="room is waited for",
        ),
    ],
)
def test_replicas_of_which_some_have_nothing_to_send_wait_for_what_passes_them(
    latencies_ms: list[int], size_bytes: int, steps: int | None, iterations: list[list[int]], ends: list[list[float]]
) -> None:
    assert ends_ms(latencies_ms, size_bytes, *iterations, steps=steps) == ends


def test_replicas_with_empty_segments_do_not_stand_for_each_other() -> None:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 4}]},
        "compute": {"forward": "1ms", "activation": "1B", "gradient": "3B"},
        "training": {"stages": 1, "pipelines": 4, "microbatches": 1, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "dp"}],
    }
    assert equal_parts(sweep_point(document).variants[0]) == 1
    document["compute"] = {"forward": "1ms", "activation": "1B", "gradient": "4B"}
    assert equal_parts(sweep_point(document).variants[0]) == 4


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
    return simulation_of(document, 2, effects=IDEAL)


def sums(simulation: Simulation, rank: int = 0, iteration: int = 0) -> list[tuple[int, int, int]]:
    """Return the start, end and size of each all-reduce of a rank."""
    spans = simulation.spans
    own = (spans.kind == KIND_CODES["all_reduce"]) & (spans.rank == rank) & (spans.iteration == iteration)
    return sorted(
        zip(spans.start_ns[own].tolist(), spans.end_ns[own].tolist(), spans.size_bytes[own].tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("backward", "begun_ms", "end_ms"), [("60ms", (25, 40, 55, 70), 80), ("20ms", (15, 25, 35, 45), 55)]
)
def test_buckets_begin_when_they_are_complete_and_follow_each_other_where_sums_are_slower(
    backward: str, begun_ms: tuple[int, ...], end_ms: int
) -> None:
    # Of two replicas each sends a bucket of 1 MB in 10 ms; backwards of 60 or 20 ms complete one every 15 or 5 ms.
    simulation = simulated(apart(2, compute={"backward": backward}, transport={**BUCKETS, "bucket": "1MB"}))
    assert sums(simulation) == [(begin * MS, (begin + 10) * MS, 1_000_000) for begin in begun_ms]
    assert simulation.windows_ns == [(0, end_ms * MS), (end_ms * MS, 2 * end_ms * MS)]


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
    run_all(events)
    assert found == expected
