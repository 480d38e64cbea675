"""Rings that share: alone they take what arithmetic gives, together what the line between them carries."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.simulator.channel import PrivateChannel
from runner.simulator.event_queue import EventQueue
from runner.simulator.line import Line
from runner.simulator.ring_all_reduce import RingCut, all_reduce_ends_ns
from runner.simulator.shared_capacity import NodePairFlow, SharedCapacity
from runner.simulator.shared_channel import SharedChannel
from runner.simulator.shared_ring import SharedRing
from runner.simulator.tcp_effects import IDEAL
from runner.simulator.tcp_window import TcpWindow
from runner.simulator.variant_simulation import simulate_variant
from tests.runner.simulator.variants import all_reduces_ns, sweep_point

CHUNK_BYTES = 1000


def window(latency_ns: int, *, narrow: bool) -> TcpWindow:
    return TcpWindow(
        2 * latency_ns, 60_000 if narrow and latency_ns else None, 14_480 if narrow and latency_ns else None
    )


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(10**6, 10**9)), min_size=2, max_size=5),
    st.integers(1, 10**6),
    st.integers(0, 10**8),
    st.booleans(),
)
def test_a_ring_whose_lines_nobody_else_uses_takes_what_a_private_one_does(
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
