"""The receiving end: when it acknowledges, what an acknowledgement says, and what it remembers."""

import pytest

from tests.support.simulator.events import run_all
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import PAYLOAD_BYTES
from wanbed.flow.packets.packet import UNLIMITED, Acknowledgement, Packet
from wanbed.flow.packets.receiver import ACKNOWLEDGEMENT_BYTES, Receiver
from wanbed.flow.packets.tick import Ticks
from wanbed.flow.packets.way import Way
from wanbed.ground.impairments import Impairments
from wanbed.testbed.network.gateway_plan import NetemPlan

MS = 1_000_000
BACK_MS = 7
SIZE = PAYLOAD_BYTES


class Receiving:
    """A receiver that expects ten full segments, and what it has said: times in milliseconds."""

    def __init__(
        self,
        *,
        loss: float = 0.0,
        rate_bytes_per_s: int | None = None,
        segments: int = 10,
        size_bytes: int = SIZE,
        has_answered: bool = True,
        window_bytes: int = UNLIMITED,
    ) -> None:
        self.events = EventQueue()
        self.acknowledgements: list[tuple[float, int, int]] = []
        self.in_order: list[tuple[float, int]] = []
        back = Way.over(self.events, NetemPlan(BACK_MS * MS, 1000, rate_bytes_per_s, Impairments(loss=loss)), "a")
        self.receiver = Receiver(
            self.events,
            back,
            self._acknowledged,
            self._arrived,
            has_answered=has_answered,
            window_bytes=window_bytes,
            ticks=Ticks(1_300_000),
        )
        self.packets = [Packet(size_bytes * each, size_bytes * (each + 1)) for each in range(segments)]
        for packet in self.packets:
            self.receiver.expect(packet)

    def _acknowledged(self, now_ns: int, what: Acknowledgement) -> None:
        self.acknowledgements.append((now_ns / MS, what.next_byte, what.packets))

    def _arrived(self, at_ns: int, next_byte: int) -> None:
        self.in_order.append((at_ns / MS, next_byte))

    def arrive(self, *arrivals: tuple[int, int]) -> list[tuple[float, int, int]]:
        """Let segments arrive, each given with its time in milliseconds. Return the acknowledgements."""
        for at_ms, number in arrivals:
            self.events.at(at_ms * MS, self.receiver.arrive, self.packets[number])
        run_all(self.events)
        return self.acknowledgements


def test_an_acknowledgement_is_a_frame_of_headers_alone() -> None:
    # Ethernet, IPv4, TCP with timestamps.
    assert ACKNOWLEDGEMENT_BYTES == 14 + 20 + 32


def test_segments_in_order_are_acknowledged_in_twos() -> None:
    assert Receiving().arrive((1, 0), (2, 1), (3, 2), (5, 3)) == [
        (2 + BACK_MS, 2 * SIZE, 2),
        (5 + BACK_MS, 4 * SIZE, 4),
    ]


def test_in_a_dialogue_a_single_segment_is_acknowledged_after_four_ticks_and_one() -> None:
    # Ticks come 1.3 ms before the tens.
    assert Receiving().arrive((1, 0)) == [(48.7 + BACK_MS, 1 * SIZE, 1)]
    # Of three the last one's own ticks count, though a timer was set for the first one.
    assert Receiving().arrive((1, 0), (2, 1), (13, 2)) == [(2 + BACK_MS, 2 * SIZE, 2), (58.7 + BACK_MS, 3 * SIZE, 3)]


def test_a_wait_for_nothing_ends_the_dialogue_and_single_segments_are_acknowledged_at_once() -> None:
    receiving = Receiving()
    receiving.arrive((1, 0))
    assert receiving.arrive((100, 1))[1:] == [(100 + BACK_MS, 2 * SIZE, 2)]


def test_without_a_dialogue_the_first_segments_are_acknowledged_one_by_one_and_later_ones_in_twos() -> None:
    every = Receiving(has_answered=False, segments=30).arrive(*[(each + 1, each) for each in range(30)])
    # Hello was acknowledged too, before.
    assert [packets for _, _, packets in every] == [*range(1, 16), *range(17, 30, 2), 30]


def test_more_than_a_segment_is_acknowledged_at_once_and_without_a_dialogue_less_than_one_is() -> None:
    assert Receiving(size_bytes=2 * SIZE).arrive((1, 0)) == [(1 + BACK_MS, 2 * SIZE, 1)]
    assert Receiving(size_bytes=SIZE - 1, has_answered=False).arrive((1, 0)) == [(1 + BACK_MS, SIZE - 1, 1)]


def test_in_a_dialogue_a_second_end_is_acknowledged_at_once() -> None:
    assert Receiving(size_bytes=500).arrive((1, 0), (3, 1)) == [(3 + BACK_MS, 1000, 2)]


def test_a_window_begins_with_64_kib_and_grows_by_twice_what_arrives_in_its_steps() -> None:
    receiving = Receiving(size_bytes=2 * SIZE, window_bytes=500 * 1024)
    windows = [receiving.receiver.carried(0).window_bytes]
    for number in range(3):
        receiving.receiver.arrive(number, receiving.packets[number])
        windows.append(receiving.receiver.carried(number).window_bytes)
    # 65535 and 4 segments of 1448 bytes each time, in steps of 8: 2^18 < 500 KiB < 2^19, where 16 bits tell 2^16.
    assert windows == [65_536, 71_328, 77_120, 82_912]


@pytest.mark.parametrize(
    ("window_bytes", "called", "calling"),
    [
        (48_128, 33 * SIZE, 32 * (SIZE + 12)),
        (65_535, 45 * SIZE, 44 * (SIZE + 12)),
        (32 * SIZE + 1, 32 * SIZE, 31 * (SIZE + 12)),
        (1000, 1000, 1000),
    ],
)
def test_a_window_that_needs_no_scaling_is_told_in_whole_segments(window_bytes: int, called: int, calling: int) -> None:
    for has_answered, first in ((True, called), (False, calling)):
        receiving = Receiving(window_bytes=window_bytes, has_answered=has_answered)
        assert receiving.receiver.told_window_bytes == first


def test_the_window_of_an_end_that_called_grows_to_the_segments_with_time_stamps_that_are_in_it() -> None:
    receiving = Receiving(size_bytes=SIZE, window_bytes=3 * SIZE + 26, has_answered=False)
    assert receiving.receiver.told_window_bytes == 2 * (SIZE + 12)
    receiving.receiver.arrive(0, receiving.packets[0])
    assert receiving.receiver.told_window_bytes == 3 * SIZE


def test_a_packet_that_answers_carries_what_is_owed_so_that_nothing_else_is_said() -> None:
    receiving = Receiving()
    receiver, (first, *_) = receiving.receiver, receiving.packets
    said: list[Acknowledgement] = []
    taken: list[Acknowledgement] = []

    def take(now_ns: int, what: Acknowledgement) -> None:
        # The other direction may send more now, and does.
        taken.append(what)
        said.append(receiver.carried(now_ns))

    receiver.answer(take)
    first.acknowledgement = Acknowledgement(7, 3, is_duplicate=False)
    assert receiving.arrive((1, 0)) == []
    assert taken == [first.acknowledgement]
    assert [(each.next_byte, each.packets) for each in said] == [(SIZE, 1)]


def test_an_answer_within_the_delay_of_what_came_begins_a_dialogue() -> None:
    for answered_ms, waits in ((35, True), (45, False)):
        receiving = Receiving(has_answered=False)
        receiving.arrive((1, 0))
        receiving.receiver.carried(answered_ms * MS)
        last_ms, *_ = receiving.arrive((50, 1))[-1]
        assert (last_ms > 50 + BACK_MS) is waits


def test_a_segment_that_leaves_a_gap_is_acknowledged_at_once_and_so_is_one_that_fills_it() -> None:
    receiving = Receiving()
    assert receiving.arrive((1, 1), (2, 2), (3, 0)) == [
        (1 + BACK_MS, 0, 1),
        (2 + BACK_MS, 0, 2),
        (3 + BACK_MS, 3 * SIZE, 3),
    ]
    assert receiving.in_order == [(3, 3 * SIZE)]
    # The gap is gone: twos again.
    assert receiving.arrive((50, 3), (51, 4))[3:] == [(51 + BACK_MS, 5 * SIZE, 5)]


def test_while_a_gap_is_open_each_segment_is_acknowledged_at_once_also_one_that_fills_a_part() -> None:
    receiving = Receiving()
    assert receiving.arrive((1, 1), (2, 3), (3, 0), (4, 2)) == [
        (1 + BACK_MS, 0, 1),
        (2 + BACK_MS, 0, 2),
        (3 + BACK_MS, 2 * SIZE, 3),
        (4 + BACK_MS, 4 * SIZE, 4),
    ]
    assert receiving.in_order == [(3, 2 * SIZE), (4, 4 * SIZE)]


def test_a_segment_that_comes_twice_is_acknowledged_at_once_and_counts_once() -> None:
    receiving = Receiving()
    assert receiving.arrive((1, 0), (2, 0)) == [(2 + BACK_MS, 1 * SIZE, 1)]
    assert receiving.in_order == [(1, 1 * SIZE)]
    # Nothing waits to be acknowledged any more: the next one is alone again.
    assert receiving.arrive((60, 1))[1:] == [(108.7 + BACK_MS, 2 * SIZE, 2)]


def test_acknowledgements_are_packets_that_the_way_back_loses_and_takes_its_time_for() -> None:
    assert Receiving(loss=1.0).arrive((1, 1), (2, 2)) == []
    assert Receiving(rate_bytes_per_s=1000 * ACKNOWLEDGEMENT_BYTES).arrive((1, 1)) == [(1 + BACK_MS + 1, 0, 1)]


def test_what_arrived_between_two_acknowledgements_is_told_in_order_of_arrival() -> None:
    receiving = Receiving()
    receiving.arrive((1, 1), (2, 0), (3, 2))
    assert [receiving.packets.index(each) for each in receiving.receiver.arrived_since(0, 2)] == [1, 0]
    assert receiving.receiver.arrived_since(2, 3) == [receiving.packets[2]]
    assert receiving.receiver.arrived_since(3, 3) == []


def test_what_was_told_is_forgotten_after_thousands_and_nothing_else_is() -> None:
    receiving = Receiving(segments=10_000)
    receiver, packets = receiving.receiver, receiving.packets
    told = 0
    for number, packet in enumerate(packets):
        receiver.arrive(number, packet)
        if number % 10 == 9:
            assert receiver.arrived_since(told, number + 1) == packets[told : number + 1]
            told = number + 1
    receiver.arrive(20_000, packets[0])
    run_all(receiving.events)
    assert receiving.acknowledgements[-1][1:] == (10_000 * SIZE, 10_000)


def test_a_packet_that_was_cut_after_it_was_sent_carries_nothing_that_its_last_part_carries_when_it_is_sent_again() -> (
    None
):
    receiving = Receiving(segments=1, size_bytes=2 * SIZE)
    taken: list[int] = []
    receiving.receiver.answer(lambda _, what: taken.append(what.next_byte))
    (packet,) = receiving.packets
    packet.acknowledgement = Acknowledgement(1, 1, False)
    _, last = packet.cut(1, SIZE)
    receiving.receiver.expect_parts(packet)
    last.acknowledgement = Acknowledgement(2, 2, False)
    receiving.receiver.arrive(0, packet)
    assert taken == [1]
    receiving.receiver.arrive(1, last)
    assert taken == [1, 2]
