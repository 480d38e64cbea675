"""The receiving end: when it acknowledges, what an acknowledgement says, and what it remembers."""

from tests.support.simulator.events import run_all
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.segments.lane import Lane, LaneRate
from wanbed.runner.simulator.segments.receiver import ACKNOWLEDGEMENT_BYTES, Receiver
from wanbed.runner.simulator.segments.segment import Segment

MS = 1_000_000
BACK_MS = 7
SIZE = 100


class Receiving:
    """A receiver that expects ten segments of 100 bytes, and what it has said: times in milliseconds."""

    def __init__(self, *, loss: float = 0.0, rate_bps: int | None = None, segments: int = 10) -> None:
        self.events = EventQueue()
        self.acknowledgements: list[tuple[float, int, int]] = []
        self.in_order: list[tuple[float, int]] = []
        back = Lane(LaneRate(rate_bps), BACK_MS * MS, loss=loss, jitter_ns=0, seed="a")
        self.receiver = Receiver(self.events, back, self._acknowledged, self._arrived)
        self.segments = [Segment(SIZE * each, SIZE * (each + 1)) for each in range(segments)]
        for segment in self.segments:
            self.receiver.expect(segment)

    def _acknowledged(self, now_ns: int, what: tuple[int, int]) -> None:
        self.acknowledgements.append((now_ns / MS, *what))

    def _arrived(self, at_ns: int, next_byte: int) -> None:
        self.in_order.append((at_ns / MS, next_byte))

    def arrive(self, *arrivals: tuple[int, int]) -> list[tuple[float, int, int]]:
        """Let segments arrive, each given with its time in milliseconds. Return the acknowledgements."""
        for at_ms, number in arrivals:
            self.receiver.arrive(self.segments[number], at_ms * MS)
        run_all(self.events)
        return self.acknowledgements


def test_an_acknowledgement_is_a_frame_of_headers_alone() -> None:
    # Ethernet, IPv4, TCP with timestamps.
    assert ACKNOWLEDGEMENT_BYTES == 14 + 20 + 32


def test_segments_in_order_are_acknowledged_in_twos() -> None:
    assert Receiving().arrive((1, 0), (2, 1), (3, 2), (5, 3)) == [(2 + BACK_MS, 200, 2), (5 + BACK_MS, 400, 4)]


def test_a_single_segment_is_acknowledged_after_40_ms() -> None:
    assert Receiving().arrive((1, 0)) == [(41 + BACK_MS, 100, 1)]
    # Of three the last one's own 40 ms count, though a timer was set for the first one.
    assert Receiving().arrive((1, 0), (2, 1), (3, 2)) == [(2 + BACK_MS, 200, 2), (43 + BACK_MS, 300, 3)]


def test_two_delays_one_after_the_other_each_last_40_ms() -> None:
    receiving = Receiving()
    receiving.arrive((1, 0))
    assert receiving.arrive((100, 1))[1:] == [(140 + BACK_MS, 200, 2)]


def test_a_segment_that_leaves_a_gap_is_acknowledged_at_once_and_so_is_one_that_fills_it() -> None:
    receiving = Receiving()
    assert receiving.arrive((1, 1), (2, 2), (3, 0)) == [
        (1 + BACK_MS, 0, 1),
        (2 + BACK_MS, 0, 2),
        (3 + BACK_MS, 300, 3),
    ]
    assert receiving.in_order == [(3, 300)]
    # The gap is gone: twos again.
    assert receiving.arrive((50, 3), (51, 4))[3:] == [(51 + BACK_MS, 500, 5)]


def test_while_a_gap_is_open_each_segment_is_acknowledged_at_once_also_one_that_fills_a_part() -> None:
    receiving = Receiving()
    assert receiving.arrive((1, 1), (2, 3), (3, 0), (4, 2)) == [
        (1 + BACK_MS, 0, 1),
        (2 + BACK_MS, 0, 2),
        (3 + BACK_MS, 200, 3),
        (4 + BACK_MS, 400, 4),
    ]
    assert receiving.in_order == [(3, 200), (4, 400)]


def test_a_segment_that_comes_twice_is_acknowledged_at_once_and_counts_once() -> None:
    receiving = Receiving()
    assert receiving.arrive((1, 0), (2, 0)) == [(2 + BACK_MS, 100, 1)]
    assert receiving.in_order == [(1, 100)]
    # Nothing waits to be acknowledged any more: the next one is alone again.
    assert receiving.arrive((60, 1))[1:] == [(100 + BACK_MS, 200, 2)]


def test_acknowledgements_are_packets_that_the_way_back_loses_and_takes_its_time_for() -> None:
    assert Receiving(loss=1.0).arrive((1, 1), (2, 2)) == []
    assert Receiving(rate_bps=8 * 1000 * ACKNOWLEDGEMENT_BYTES).arrive((1, 1)) == [(1 + BACK_MS + 1, 0, 1)]


def test_what_arrived_between_two_acknowledgements_is_told_in_order_of_arrival() -> None:
    receiving = Receiving()
    receiving.arrive((1, 1), (2, 0), (3, 2))
    assert [receiving.segments.index(each) for each in receiving.receiver.arrived_since(0, 2)] == [1, 0]
    assert receiving.receiver.arrived_since(2, 3) == [receiving.segments[2]]
    assert receiving.receiver.arrived_since(3, 3) == []


def test_what_was_told_is_forgotten_after_thousands_and_nothing_else_is() -> None:
    receiving = Receiving(segments=10_000)
    receiver, segments = receiving.receiver, receiving.segments
    told = 0
    for number, segment in enumerate(segments):
        receiver.arrive(segment, number)
        if number % 10 == 9:
            assert receiver.arrived_since(told, number + 1) == segments[told : number + 1]
            told = number + 1
    receiver.arrive(segments[0], 20_000)
    run_all(receiving.events)
    assert receiving.acknowledgements[-1][1:] == (10_000 * SIZE, 10_000)
