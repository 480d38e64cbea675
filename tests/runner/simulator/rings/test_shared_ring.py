"""Rings on shared lines: alone they take the computed time, together the time that the shared line allows."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runner.simulator.variants import all_reduces_ns, sweep_point
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.changing.changing_channel import ChangingChannel
from wanbed.runner.simulator.network.changing.changing_path import ChangingPath, constant
from wanbed.runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.runner.simulator.network.shared_channel import SharedChannel
from wanbed.runner.simulator.rings.ring_all_reduce import RingCut, all_reduce_ends_ns
from wanbed.runner.simulator.rings.shared_ring import SharedRing, awaits_room
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.runner.tcp.effects import IDEAL
from wanbed.testbed.network.flow_model.congestion_window import CongestionWindow
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.window import TcpWindow
from wanbed.testbed.network.links.link_conditions import LinkConditions

CHUNK_BYTES = 1000


def window(latency_ns: int, *, narrow: bool) -> TcpWindow:
    rtt_ns = 2 * latency_ns
    if not narrow or not latency_ns:
        return TcpWindow(rtt_ns, None, None)
    return TcpWindow(rtt_ns, 60_000, CongestionWindow(1, 14_480, rtt_ns, None))


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
    ring = SharedRing(channels, connections, cut, events)
    ends_ns: dict[int, int] = {}

    def join(now_ns: int, position: int) -> None:
        ring.join(0, position, now_ns, lambda _, end_ns: ends_ns.update({position: end_ns}))

    for position, start_ns in enumerate(starts_ns):
        events.at(start_ns, join, position)
    while events.handle_next_instant():
        pass
    assert [ends_ns[position] for position in range(len(replicas))] == expected


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
    point = sweep_point(rings_over_one_trunk(rings, trunk="10Gbit", hosts_each=1 if one_host else rings))
    simulation = simulate_variant(point.topology, point.variants[0], 1, effects=IDEAL)
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
        point = sweep_point(of)
        return max(all_reduces_ns(simulate_variant(point.topology, point.variants[0], 1, effects=IDEAL))) / 1e9

    assert ring_s(alone) == pytest.approx(1.0, rel=1e-3)
    assert ring_s(document) > 1.5


def ring_ends_ns(latencies_ms: list[int], cut: RingCut) -> list[int]:
    """Return when each replica of a ring over lines of these latencies and unlimited rate ends, all ready at once."""
    events = EventQueue()
    channels = [
        PrivateChannel(Line(None, latency_ms * 1_000_000, headers=False), TcpWindow(0, None, None))
        for latency_ms in latencies_ms
    ]
    ring = SharedRing(channels, [1] * len(channels), cut, events)
    ends_ns: dict[int, int] = {}

    def note(position: int, _: int, end_ns: int) -> None:
        ends_ns[position] = end_ns

    for position in range(len(channels)):
        ring.join(0, position, 0, partial(note, position))
    while events.handle_next_instant():
        pass
    return [ends_ns[position] for position in range(len(channels))]


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
