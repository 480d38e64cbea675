"""A ring all-reduce chunk by chunk: the way over which replicas report the chunks that they have used."""

from typing import Any, cast

from tests.support.simulator.events import run_all
from wanbed.flow.channel import Accepted, Known, Left
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.simulator.rings.chunked_ring import ChunkedRing
from wanbed.runner.simulator.rings.ring_all_reduce import RingCut

LATENCY_NS = 10


class Recording:
    """A channel that carries anything at once, and remembers when it was asked to carry a report."""

    def __init__(self, latency_ns: int = LATENCY_NS) -> None:
        self.requests_ns: list[int] = []
        self._latency_ns = latency_ns

    def queue(
        self, available_ns: int, size_bytes: int, left: Left, striping: None, *, accepted: Accepted, at_once: bool
    ) -> None:
        left(available_ns, available_ns)
        accepted(available_ns)

    def arrival_ns(self, left_ns: int) -> int:
        return left_ns + self._latency_ns

    def report_ns(self, now_ns: int) -> int:
        return now_ns + self._latency_ns

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        self.requests_ns.append(now_ns)
        known(now_ns + self._latency_ns)


def requests_ns(replicas: int, *, followed: bool) -> tuple[list[list[int]], list[list[int]]]:
    """When each channel of a ring was asked to carry a report, and each one back where those are others."""
    events, size_bytes = EventQueue(), 8 << 20
    channels = [Recording() for _ in range(replicas)]
    backs = channels[::-1] if replicas == 2 else [Recording() for _ in range(replicas)]
    cut = RingCut.of(size_bytes, replicas)
    ring = ChunkedRing(
        cast("Any", channels), size_bytes, cut, events, cast("Any", backs if followed else [None] * replicas)
    )
    ended_ns: list[int] = []
    for position in range(replicas):
        ring.join(0, position, 0, lambda _, now_ns: ended_ns.append(now_ns))
    run_all(events)
    assert ended_ns == [2 * (replicas - 1) * LATENCY_NS] * replicas
    return [channel.requests_ns for channel in channels], [back.requests_ns for back in backs]


# All chunks of a step come at once, and are reported once.
TWO_STEPS_NS, FOUR_STEPS_NS = ([count * LATENCY_NS for count in range(1, 1 + steps)] for steps in (2, 4))


def test_between_two_replicas_reports_go_over_the_connections_of_the_chunks() -> None:
    forth_ns, _ = requests_ns(2, followed=True)
    assert forth_ns == [TWO_STEPS_NS] * 2


def test_in_a_larger_ring_reports_go_against_the_chunks_over_the_same_connections() -> None:
    forth_ns, back_ns = requests_ns(3, followed=True)
    assert forth_ns == [[]] * 3
    assert back_ns == [FOUR_STEPS_NS] * 3


def test_replicas_without_a_latency_report_all_that_they_use_at_an_instant() -> None:
    events, ended_ns = EventQueue(), []
    # More chunks than the window has, so that the last ones wait for reports.
    size_bytes = 512 << 20
    channels = [Recording(latency_ns=0) for _ in range(2)]
    ring = ChunkedRing(
        cast("Any", channels), size_bytes, RingCut.of(size_bytes, 2), events, cast("Any", channels[::-1])
    )
    for position in range(2):
        ring.join(0, position, 0, lambda _, now_ns: ended_ns.append(now_ns))
    run_all(events)
    assert ended_ns == [0, 0]


def test_reports_take_a_latency_where_no_packets_go_that_way() -> None:
    assert requests_ns(3, followed=False) == ([[]] * 3, [[]] * 3)
