"""Acknowledgements wait behind data of the other direction: two full directions slow each other down."""

from typing import Any

import pytest

from tests.support.simulator.events import run_all
from tests.support.simulator.simulation_of import simulation_of
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import PAYLOAD_BYTES, Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.shared_channel import SharedChannel
from wanbed.flow.window import TcpWindow, opened
from wanbed.runner.simulator.simulation import Simulation
from wanbed.testbed.network.tcp_settings import TcpSettings

LATENCY_NS = 40_000_000
LINE = Line(8_000_000, LATENCY_NS, headers=False)
"""A byte takes a microsecond."""


class TwoWays:
    """Two hosts that send to each other over one line in each direction, with the given windows."""

    def __init__(self, *windows: TcpWindow, line: Line = LINE) -> None:
        self.events = EventQueue()
        assert line.rate_bps is not None
        capacity = SharedCapacity(self.events, {0: line.rate_bps, 1: line.rate_bps})
        flows = [NodePairFlow(number, [number]) for number in range(2)]
        flows[0].opposite, flows[1].opposite = flows[1], flows[0]
        self.channels = [
            SharedChannel(line, window, flow, capacity) for window, flow in zip(windows, flows, strict=True)
        ]

    def ends_ns(self, *transfers: tuple[int, int, int]) -> list[int]:
        """Return when each transfer, given by direction, time and size, has left."""
        found = [0] * len(transfers)
        for number, (direction, available_ns, size_bytes) in enumerate(transfers):

            def left(_: int, end_ns: int, number: int = number) -> None:
                found[number] = end_ns

            self.channels[direction].queue(available_ns, size_bytes, left)
        run_all(self.events)
        return found


def ring(latency: str, *, replicas: int = 2, transport: dict[str, Any] | None = None, **changes: Any) -> Simulation:
    """Replicas, a host each, whose ring fills each line; that of two fills one both ways."""
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": replicas}],
            "intra": {"latency": latency, "rate": "400Mbit"},
        },
        "compute": {"forward": "1ms", "activation": "1B", "gradient": "4MiB"},
        "training": {"stages": 1, "pipelines": replicas, "microbatches": 1, "iterations": 2, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "dp", "transport": {"window": "256KiB", **(transport or {})}}],
    }
    return simulation_of(document, 2, **changes)


def window(size_bytes: int) -> TcpWindow:
    """One that is open from the beginning."""
    return TcpWindow(2 * LATENCY_NS, size_bytes, None)


@pytest.mark.parametrize("window_bytes", [100_000, 140_000])
def test_two_full_directions_take_turns_at_the_speed_of_the_round_trip_and_what_waits(window_bytes: int) -> None:
    # Zhang et al.: all acknowledgements of a window wait until the other one has left, and come back at once.
    round_ns = 2 * LATENCY_NS + (window_bytes * 1000 - LATENCY_NS)
    both = TwoWays(window(window_bytes), window(window_bytes))
    ends_ns = both.ends_ns((0, 0, 5 * window_bytes), (1, 0, 5 * window_bytes))
    assert ends_ns == [4 * round_ns + window_bytes * 1000] * 2


@pytest.mark.parametrize("transfers", [1, 5, 10, 50])
def test_it_does_not_matter_in_how_many_transfers_the_same_bytes_are_cut(transfers: int) -> None:
    both = TwoWays(window(100_000), window(100_000))
    cut = [(direction, 0, 500_000 // transfers) for direction in (0, 1) for _ in range(transfers)]
    ends_ns = both.ends_ns(*cut)
    whole_ns = TwoWays(window(100_000), window(100_000)).ends_ns((0, 0, 500_000), (1, 0, 500_000))
    assert [ends_ns[transfers - 1], ends_ns[-1]] == pytest.approx(whole_ns, rel=0.01)


def test_a_transfer_of_very_many_windows_is_not_looked_at_window_by_window() -> None:
    both = TwoWays(window(100_000), window(100_000))
    both.channels[0].queue(0, 10**12, lambda *_: None)
    both.channels[1].queue(0, 10**12, lambda *_: None)
    instants = 0
    while both.events.handle_next_instant():
        instants += 1
    assert instants < 10_000


def test_a_direction_that_is_alone_fills_the_line() -> None:
    assert TwoWays(window(100_000), window(100_000)).ends_ns((0, 0, 500_000)) == [500_000_000]


def test_what_the_other_direction_sends_after_the_acknowledgements_delays_none() -> None:
    ends_ns = TwoWays(window(50_000), window(100_000)).ends_ns((0, 0, 100_000), (1, LATENCY_NS + 1, 100_000))
    assert ends_ns[0] == 2 * LATENCY_NS + 50_000_000


def test_slow_start_ends_when_first_acknowledgements_wait_an_eighth_of_the_round_trip() -> None:
    line = Line(800_000_000, LATENCY_NS, headers=False)
    size_bytes = 170 * PAYLOAD_BYTES

    def left_ns(other_bytes: int) -> int:
        both = TwoWays(opened(line, 1, TcpSettings()), window(8_000_000), line=line)
        return both.ends_ns((0, 0, size_bytes), (1, 2 * LATENCY_NS, other_bytes))[0]

    # Rounds of 10, 20, 40, 80 and 20 segments.
    assert 4 <= left_ns(1) / (2 * LATENCY_NS) < 4.1
    # Late are eight acknowledgements of two segments each: 10, 20, 36, and then a twentieth more in each round.
    assert 5 <= left_ns(16_000_000) / (2 * LATENCY_NS) < 6


@pytest.mark.parametrize("replicas", [2, 4])
def test_of_equal_replicas_whose_rings_meet_one_stands_for_all(replicas: int) -> None:
    # Sums beside backwards are simulated event by event, also those of rings that meet no other traffic.
    overlap = {"all_reduce_overlap": True, "bucket": "1MiB"}
    one, every = (ring("500us", replicas=replicas, transport=overlap, symmetry=symmetry) for symmetry in (True, False))
    assert (one.spans.end_ns == every.spans.end_ns).all()


def test_rings_of_two_replicas_take_longer_than_their_bytes_where_there_is_a_round_trip() -> None:
    # Windows of 184 kB hold up acknowledgements: each takes its 3.8 ms and half a round trip more.
    near_ns, far_ns = (
        (window[1] - window[0] for window in ring(latency).windows_ns[-1:]) for latency in ("0ms", "500us")
    )
    (near,), (far,) = near_ns, far_ns
    assert 1.08 * near < far < 1.3 * near
