"""A ring all-reduce chunk by chunk: the way over which replicas report the chunks that they have used."""

from typing import Any, cast

import pytest

from tests.support.simulator.events import run_all
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.rings.chunked_ring import ChunkedRing
from wanbed.runner.simulator.rings.ring_all_reduce import RingCut
from wanbed.runner.tcp.channel import Accepted, Known, Left

LATENCY_NS = 10


class Recording:
    """A channel that carries anything at once, and remembers when it was asked to carry a report."""

    def __init__(self) -> None:
        self.requests_ns: list[int] = []

    def queue(self, available_ns: int, size_bytes: int, left: Left, *, accepted: Accepted, at_once: bool) -> None:
        left(available_ns, available_ns)
        accepted(available_ns)

    def arrival_ns(self, left_ns: int) -> int:
        return left_ns + LATENCY_NS

    def report_ns(self, now_ns: int) -> int:
        return now_ns + LATENCY_NS

    def request(self, now_ns: int, known: Known) -> None:
        self.requests_ns.append(now_ns)
        known(now_ns + LATENCY_NS)


@pytest.mark.parametrize(
    ("replicas", "reports_ns"),
    [
        # All chunks of a step come at once, and are reported once.
        (2, [[LATENCY_NS, 2 * LATENCY_NS]] * 2),
        # No chunks go the other way.
        (3, [[]] * 3),
    ],
)
def test_between_two_replicas_reports_go_over_the_connections_of_the_chunks(
    replicas: int, reports_ns: list[list[int]]
) -> None:
    events, size_bytes = EventQueue(), 8 << 20
    channels = [Recording() for _ in range(replicas)]
    ring = ChunkedRing(cast("Any", channels), size_bytes, RingCut.of(size_bytes, replicas), events)
    ended_ns: list[int] = []
    for position in range(replicas):
        ring.join(0, position, 0, lambda _, now_ns: ended_ns.append(now_ns))
    run_all(events)
    assert ended_ns == [2 * (replicas - 1) * LATENCY_NS] * replicas
    assert [channel.requests_ns for channel in channels] == reports_ns
