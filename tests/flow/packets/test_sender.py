"""The sending end over a link of 40 ms: when it sends, what it takes for lost, and what its window becomes."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES
from wanbed.flow.packets.congestion_control import Bbr, Cubic
from wanbed.flow.packets.packet import INITIAL_SEGMENTS, UNLIMITED
from wanbed.flow.packets.receiver import Receiver
from wanbed.flow.packets.sender import RoundTrips, TcpSender, late_segment_ns
from wanbed.flow.packets.tick import Ticks, met_after
from wanbed.flow.packets.way import Way
from wanbed.testbed.network.gateway_plan import NetemPlan

MS = 1_000_000
WAY_MS = 20
ENOUGH = 1 << 30

SINCE_TICK_NS = 1_300_000
TICKS = Ticks(SINCE_TICK_NS)

FAST_BPS = 10**9
"""A packet then takes 12 us: no two are sent at once, and many take no time that matters."""


class LosingWay(Way):
    """A way that loses the packets with the given numbers, and remembers when which sizes were sent."""

    __slots__ = ("_loses", "_over", "packets")

    def __init__(self, events: EventQueue, loses: Collection[int] = (), rate_bps: int | None = None) -> None:
        self._over = Way.over(events, NetemPlan(WAY_MS * MS, 1000, None if rate_bps is None else rate_bps // 8))
        self._loses = loses
        self.packets: list[tuple[int, int]] = []

    def send(self, now_ns: int, wire_bytes: int, arrives: Callable[[int, Any], None], what: Any) -> None:
        self.packets.append((now_ns, wire_bytes))
        if len(self.packets) - 1 not in self._loses:
            self._over.send(now_ns, wire_bytes, arrives, what)

    def carrying_ns(self, wire_bytes: int) -> int:
        return self._over.carrying_ns(wire_bytes)


class Connection:
    """A sender, a receiver and the bytes that are to be sent, which are written as the socket has room."""

    def __init__(
        self,
        loses: Collection[int] = (),
        *,
        congestion: Cubic | Bbr | None = None,
        window_bytes: int = ENOUGH,
        unsent_bytes: int = 1 << 20,
        restarts: bool = True,
        loses_back: Collection[int] = (),
        rate_bps: int | None = None,
        most_segments: int = 1,
        rtt_ns: int = 0,
        greeted_ns: int = 0,
        events: EventQueue | None = None,
    ) -> None:
        self.events = events or EventQueue()
        self.forth = LosingWay(self.events, loses, rate_bps)
        self.congestion = congestion or Cubic(ticks=TICKS)
        self.sender = TcpSender(
            self.events,
            self,
            self.congestion,
            self.forth,
            unsent_bytes=unsent_bytes,
            restarts=restarts,
            most_segments=most_segments,
            rtts_ns=(rtt_ns, rtt_ns) if rtt_ns else (),
            greeted_ns=greeted_ns,
            ticks=TICKS,
        )
        self.waiting_bytes = 0
        self.in_order: list[tuple[int, int]] = []
        self.carries: list[tuple[int, int, int]] = []
        self.most_waiting = 0
        self.back = LosingWay(self.events, loses_back)
        receiver = Receiver(
            self.events,
            self.back,
            self.sender.acknowledged,
            self._arrived,
            window_bytes=window_bytes,
            has_answered=True,
            ticks=TICKS,
        )
        self.sender.connect(receiver)

    def progressed(self, sender: TcpSender, now_ns: int) -> None:
        while self.waiting_bytes and sender.has_room:
            part_bytes = min(self.waiting_bytes, 4 * PAYLOAD_BYTES)
            self.waiting_bytes -= part_bytes
            self.most_waiting = max(self.most_waiting, sender.unsent + part_bytes)
            sender.write(part_bytes, now_ns)

    def carried(self, from_ns: int, until_ns: int, size_bytes: int) -> None:
        self.carries.append((from_ns // MS, until_ns // MS, size_bytes))

    def _arrived(self, at_ns: int, next_byte: int) -> None:
        self.in_order.append((at_ns // MS, next_byte))

    def write(self, at_ms: int, segments: float) -> None:
        def written(now_ns: int, _: None) -> None:
            self.waiting_bytes += round(segments * PAYLOAD_BYTES)
            self.progressed(self.sender, now_ns)

        self.events.at(at_ms * MS, written, None)

    def run(self, until_ms: int | None = None) -> dict[int, int]:
        """Let time pass. Return how many packets were sent in which millisecond."""
        while (next_ns := self.events.next_ns) is not None and (until_ms is None or next_ns <= until_ms * MS):
            self.events.handle_next_instant()
        return dict(Counter(at_ns // MS for at_ns, _ in self.forth.packets))


def written(segments: float, loses: Collection[int] = (), **options: Any) -> Connection:
    """Return a connection into which so many segments are written when it begins."""
    connection = Connection(loses, **options)
    connection.write(0, segments)
    return connection


def sent(segments: float, loses: Collection[int] = (), **options: Any) -> Connection:
    connection = written(segments, loses, **options)
    connection.run()
    return connection


def test_slow_start_sends_ten_segments_and_twice_as_many_each_round() -> None:
    connection = written(150)
    assert connection.run() == {0: 10, 40: 20, 80: 40, 120: 80}
    assert connection.in_order[-1] == (140, 150 * PAYLOAD_BYTES)
    assert connection.sender.in_flight == connection.sender.unsent == 0


def test_a_greeting_takes_a_segment_of_the_first_window_until_it_is_acknowledged() -> None:
    connection = written(30, rtt_ns=2 * WAY_MS * MS, greeted_ns=10 * MS)
    # Its acknowledgement lets two segments follow, as that of any segment does in slow start. The ninth is acknowledged
    # together with the tenth.
    assert connection.run() == {0: 9, 10: 2, 40: 16, 50: 3}
    assert connection.in_order[-1] == (70, 30 * PAYLOAD_BYTES)


def test_a_greeting_that_is_acknowledged_before_anything_is_written_leaves_the_window_as_it_is() -> None:
    connection = Connection(rtt_ns=2 * WAY_MS * MS, greeted_ns=10 * MS)
    connection.write(20, 30)
    assert connection.run() == {20: 10, 60: 20}


def test_a_packet_has_up_to_1448_bytes_of_payload_and_its_headers() -> None:
    connection = sent(1.5)
    assert connection.forth.packets == [(0, FRAME_BYTES), (0, FRAME_BYTES - PAYLOAD_BYTES // 2)]
    assert connection.carries == [(20, 20, PAYLOAD_BYTES), (20, 20, PAYLOAD_BYTES // 2)]


def test_no_more_is_in_flight_than_may_be() -> None:
    assert written(40, window_bytes=16 * PAYLOAD_BYTES).run() == {0: 10, 40: 16, 80: 14}


def test_a_socket_has_room_while_less_than_half_of_what_may_wait_does() -> None:
    sender = Connection(unsent_bytes=20 * PAYLOAD_BYTES).sender
    # Ten are sent at once.
    sender.write(20 * PAYLOAD_BYTES - 1, 0)
    assert sender.has_room
    sender.write(1, 0)
    assert not sender.has_room
    assert sender.takes_more
    sender.write(10 * PAYLOAD_BYTES, 0)
    assert not sender.takes_more


def test_small_buffers_hold_little_and_slow_nothing_down() -> None:
    connection = written(70, unsent_bytes=8 * PAYLOAD_BYTES)
    assert connection.run() == {0: 10, 40: 20, 80: 40}
    # Fewer than four segments wait when four more are written.
    assert connection.most_waiting <= 7 * PAYLOAD_BYTES


def test_a_window_that_is_not_filled_does_not_grow_beyond_twice_what_was_in_flight() -> None:
    for segments, window in ((4, 10), (5, 10), (6, 12), (8, 16), (10, 20)):
        connection = Connection()
        for round_ms in range(0, 200, 100):
            connection.write(round_ms, segments)
        connection.run()
        assert connection.congestion.window == window


@pytest.mark.parametrize(("segments", "again_ms"), [(2, 58), (3, 58), (4, 40), (10, 40)])
def test_a_lost_segment_is_sent_again_once_three_later_ones_have_arrived_or_after_a_while(
    segments: int, again_ms: int
) -> None:
    # RACK waits for a reordered segment for an eighth of a round trip. The kernel's timer adds 2 ms and a tick. Ticks
    # come 1.3 ms before the tens.
    connection = sent(segments, loses=[0])
    assert connection.run() == {0: segments, again_ms: 1}
    assert connection.in_order == [(again_ms + WAY_MS, segments * PAYLOAD_BYTES)]


@pytest.mark.parametrize("loses", [[10], [10, 13, 16], [10, 20]])
def test_the_losses_of_a_round_reduce_the_window_once_to_seven_tenths(loses: list[int]) -> None:
    connection = written(60, loses, rate_bps=FAST_BPS)
    # Of 20 segments some are lost; the acknowledgements of the first two later ones let one out each.
    assert connection.run(100) == {0: 10, 40: 20, 80: 15}
    threshold = 22 * 717 // 1024
    assert connection.congestion.threshold == connection.sender.in_flight == threshold
    connection.run()
    assert connection.congestion.window in {threshold, threshold + 1}
    assert connection.in_order[-1][1] == 60 * PAYLOAD_BYTES
    assert len(connection.forth.packets) == 60 + len(loses)


def test_losses_of_two_rounds_reduce_the_window_twice() -> None:
    connection = sent(80, [10, 50], rate_bps=FAST_BPS)
    assert connection.congestion.threshold == 22 * 717 // 1024 * 717 // 1024
    assert len(connection.forth.packets) == 80 + 2


def test_a_lost_end_is_probed_after_two_round_trips_and_two_milliseconds() -> None:
    connection = sent(10, loses=[8, 9])
    # Acknowledged at 40 ms: 40 + 2 * 40 + 2 ms, in ticks, and one more. The probe shows that the one before it is lost.
    assert connection.run() == {0: 10, 138: 1, 178: 1}
    assert connection.in_order[-1] == (198, 10 * PAYLOAD_BYTES)
    assert connection.congestion.threshold == 18 * 717 // 1024


def test_a_probe_is_sent_in_place_of_a_timeout_that_would_come_before() -> None:
    # 40 + 2 * 40 + 200 ms for the probe, as a single segment's acknowledgement may be delayed; 40 + 40 + 200 ms and a
    # tick for the timeout.
    connection = sent(9, loses=[8])
    assert connection.run() == {0: 9, 288: 1}
    assert connection.congestion.window > INITIAL_SEGMENTS


def test_a_probe_that_mends_a_loss_reduces_the_window_once_more_than_it_has_arrived() -> None:
    # The last of four is lost, and so is the acknowledgement of the third one.
    connection = written(4, [3], loses_back=[1])
    assert connection.run() == {0: 4, 138: 1}
    assert connection.congestion.window == 10
    connection.write(200, 2)
    connection.run()
    assert connection.congestion.threshold == 10 * 717 // 1024


def test_a_probe_of_something_that_was_only_late_reduces_nothing() -> None:
    # Two acknowledgements are lost: what the probe repeats has arrived.
    connection = written(4, loses_back=[0, 1])
    connection.write(1200, 4)
    connection.run()
    assert connection.congestion.threshold > 1000


def test_a_timeout_is_taken_back_when_what_it_took_for_lost_arrives_later_than_expected() -> None:
    # A slow line carries the second flight in 400 ms, and nothing of it is acknowledged before its first packet's end.
    connection = Connection(rate_bps=50_000)
    connection.write(0, 1)
    connection.write(400, 2)
    connection.run()
    assert connection.in_order[-1][1] == 3 * PAYLOAD_BYTES
    assert connection.congestion.window >= 10
    assert connection.sender.in_flight == 0


@pytest.mark.parametrize(("loses_back", "window"), [((), 80), (range(100), (80 + 3 * 4) // 2)])
def test_a_window_that_is_not_used_loses_half_of_the_rest_if_nothing_was_acknowledged_for_a_timeout(
    loses_back: Collection[int], window: int
) -> None:
    # The timeout of 40 + 200 ms has passed, but its timer has not gone off. Nobody has acknowledged three flights.
    connection = Connection(loses_back=loses_back, rtt_ns=40 * MS)
    connection.congestion.window = connection.congestion.threshold = 80
    for at_ms in (0, 100, 200, 245):
        connection.write(at_ms, 4)
    connection.run(246)
    assert (connection.congestion.window, connection.congestion.threshold) == (window, 80)


def test_the_end_of_what_is_written_is_accepted_when_the_socket_is_writable() -> None:
    # Segments take a millisecond each, and four may wait. The socket is writable while less than two do.
    connection = Connection(unsent_bytes=4 * PAYLOAD_BYTES, rate_bps=FRAME_BYTES * 8 * 1000, rtt_ns=40 * MS)
    connection.congestion.window = connection.congestion.threshold = 10
    connection.events.at(0, lambda now_ns, _: connection.sender.write(15 * PAYLOAD_BYTES, now_ns), None)
    accepted = []
    for until_ms in (1, 43, 45):
        connection.run(until_ms)
        accepted.append((connection.sender.sent // PAYLOAD_BYTES, connection.sender.accepted // PAYLOAD_BYTES))
    # The end would fit in as soon as a segment is acknowledged, but nobody is told then.
    assert accepted == [(10, 14), (12, 14), (14, 15)]
    assert connection.sender.written == 15 * PAYLOAD_BYTES


def test_a_buffer_has_parts_of_seventeen_pages_at_most() -> None:
    # Buffers have 22 segments while the window is narrow, 45 later. Ten segments go at once; four buffers may wait.
    connection = Connection(unsent_bytes=4 * 22 * PAYLOAD_BYTES, most_segments=45, window_bytes=1 << 22, rtt_ns=40 * MS)
    connection.events.at(0, lambda now_ns, _: connection.sender.write(400_000, now_ns, 44), None)
    connection.run()
    # The last of them has parts of nine pages when the socket is writable again. What is accepted then begins with the
    # first page, so that eight pages more go into that buffer, where two times 22 segments and one would fit.
    ends = [next_byte for _, next_byte in connection.in_order]
    assert (10 + 4 * 22) * PAYLOAD_BYTES + 8 * 4096 in ends
    assert (10 + 3 * 22 + 45) * PAYLOAD_BYTES not in ends
    assert ends[-1] == 400_000


def test_packets_have_as_many_segments_as_are_sent_in_a_millisecond_and_at_least_two() -> None:
    # Ten segments in 40 ms, then more as the window opens: 120 % of it while it is less than half of the threshold.
    connection = sent(150, most_segments=45, rtt_ns=40 * MS)
    sizes = [round((wire_bytes - 1) / FRAME_BYTES + 0.5) for _, wire_bytes in connection.forth.packets]
    assert sum(sizes) == 150
    assert sizes[:5] == [2] * 5
    assert max(sizes) == 2 * 80 * 1448 * 1000 // 40 // 1024 // 1448


def test_a_packet_that_could_be_larger_waits_for_an_acknowledgement_that_comes_soon() -> None:
    # Of 16 segments that may be in flight, 15 are; the last one goes with the next.
    connection = Connection(most_segments=45, rtt_ns=40 * MS, window_bytes=16 * PAYLOAD_BYTES)
    connection.congestion.window = 64
    connection.write(0, 15)
    connection.write(40, 20)
    assert connection.run(39) == {0: len(connection.forth.packets)}
    connection.run()
    assert connection.in_order[-1][1] == 35 * PAYLOAD_BYTES


def test_a_probe_of_a_packet_of_several_segments_repeats_the_last_one() -> None:
    connection = Connection([3, 4], rtt_ns=40 * MS, most_segments=4)
    connection.events.at(0, lambda now_ns, _: connection.sender.write(9 * PAYLOAD_BYTES + 500, now_ns), None)
    connection.run()
    headers_bytes = FRAME_BYTES - PAYLOAD_BYTES
    repeated = [(at_ns // MS, wire_bytes) for at_ns, wire_bytes in connection.forth.packets if at_ns]
    # Its acknowledgement tells that three segments before it were lost, of which the window lets out one at first.
    assert repeated == [(138, 500 + headers_bytes), (178, FRAME_BYTES), (218, FRAME_BYTES), (218, FRAME_BYTES)]
    assert connection.in_order[-1] == (238, 9 * PAYLOAD_BYTES + 500)


def test_a_packet_that_was_only_late_arrives_in_the_parts_that_its_probe_made_of_it() -> None:
    connection = Connection(rtt_ns=MS, most_segments=4)
    # The probe is sent before the first acknowledgement could come.
    connection.events.at(0, lambda now_ns, _: connection.sender.write(9 * PAYLOAD_BYTES + 500, now_ns), None)
    connection.run()
    assert connection.in_order[-1] == (WAY_MS, 9 * PAYLOAD_BYTES + 500)
    assert [wire_bytes for at_ns, wire_bytes in connection.forth.packets if at_ns] == [
        500 + FRAME_BYTES - PAYLOAD_BYTES
    ]
    assert (connection.sender.in_flight, connection.congestion.threshold) == (0, UNLIMITED)


def test_while_a_probe_is_out_the_timeout_counts_from_the_first_packet_and_repeats_one_segment() -> None:
    connection = Connection(rtt_ns=40 * MS, loses_back=range(100), most_segments=4)
    for at_ms in (0, 100, 200):
        connection.events.at(at_ms * MS, lambda now_ns, _: connection.sender.write(4 * PAYLOAD_BYTES, now_ns), None)
    connection.run(300)
    sent_bytes = [(at_ns // MS, wire_bytes) for at_ns, wire_bytes in connection.forth.packets]
    # The timeout is 40 + 200 ms and goes off with the second tick from then, of the packet that was sent at 0.
    flights = [(at_ms, 2 * FRAME_BYTES) for at_ms in (0, 0, 100, 100, 200)]
    assert sent_bytes == [*flights[:2], (98, FRAME_BYTES), *flights[2:], (258, FRAME_BYTES)]


def test_a_timeout_is_taken_back_when_a_time_stamp_tells_that_the_packet_was_only_late() -> None:
    # A frame takes 500 ms, which is more than the timeout.
    connection = Connection(rtt_ns=40 * MS, rate_bps=FRAME_BYTES * 8 * 2)
    connection.write(0, 10)
    connection.run(500)
    assert (connection.congestion.window, connection.congestion.threshold) == (1, 7)
    connection.run(600)
    assert (connection.congestion.window, connection.congestion.threshold) == (11, UNLIMITED)


def test_what_a_receive_window_cuts_off_goes_with_the_segments_before_it() -> None:
    # A first window of 64 KiB is 45 segments and 375 bytes.
    connection = Connection(window_bytes=80_000, rtt_ns=40 * MS, most_segments=2)
    connection.congestion.window = 100
    connection.events.at(0, lambda now_ns, _: connection.sender.write(60 * PAYLOAD_BYTES, now_ns), None)
    connection.run(30)
    cut_bytes = 2 * FRAME_BYTES - PAYLOAD_BYTES + 375
    assert [wire_bytes for _, wire_bytes in connection.forth.packets] == [2 * FRAME_BYTES] * 22 + [cut_bytes]


def test_a_probe_sends_what_is_new_if_there_is_any_and_what_was_lost_is_sent_once() -> None:
    connection = written(60, range(10, 30))
    assert connection.run(160) == {0: 10, 40: 20, 138: 1}
    assert connection.sender.sent == 31 * PAYLOAD_BYTES
    connection.run()
    assert len(connection.forth.packets) == 60 + 20
    assert connection.in_order[-1][1] == 60 * PAYLOAD_BYTES


def test_a_probe_sends_nothing_new_beyond_what_may_be_in_flight() -> None:
    connection = written(60, range(10, 20), window_bytes=10 * PAYLOAD_BYTES)
    assert connection.run(160) == {0: 10, 40: 10, 138: 1}
    assert connection.sender.sent == 20 * PAYLOAD_BYTES


def test_a_flight_that_is_lost_and_its_probe_are_sent_again_after_a_second_each_by_slow_start() -> None:
    connection = sent(10, loses=range(11))
    # The acknowledgement of a single segment is delayed by 40 ms.
    assert connection.run() == {0: 10, 1008: 1, 2018: 1, 2108: 2, 2148: 4, 2188: 3}
    assert connection.congestion.threshold == 10 * 717 // 1024


def test_each_timeout_is_twice_as_long_as_the_one_before_but_no_longer_than_256_seconds() -> None:
    connection = written(1, [*range(11), 12])
    connection.write(2_000_000, 1)
    times_ms = [0]
    # The first time it is a probe, in place of the timeout.
    for wait_s in (1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256):
        times_ms.append(times_ms[-1] + 1000 * wait_s + 10)
    # When something has arrived, its time stamp has told a round trip of 40 ms, of which the probe of a single segment
    # waits for two, and 200 ms more.
    # Ticks come 1.3 ms before the tens.
    assert list(connection.run()) == [0, *(time_ms - 2 for time_ms in times_ms[1:]), 2_000_000, 2_000_298]


@pytest.mark.parametrize(
    ("idle_ms", "window"), [(230, 80), (250, 40), (480, 40), (490, 20), (720, 20), (730, 10), (5000, 10)]
)
def test_a_pause_of_more_than_a_timeout_halves_the_window_for_each_of_them_down_to_ten(
    idle_ms: int, window: int
) -> None:
    # The timeout is 40 + 200 ms.
    for restarts in (True, False):
        connection = Connection(restarts=restarts)
        connection.write(0, 70)
        connection.write(80 + idle_ms, 100)
        assert connection.run(80 + idle_ms)[80 + idle_ms] == (window if restarts else 80)


@pytest.mark.parametrize(("before", "threshold"), [(50, 60), (70, 70)])
def test_after_a_pause_slow_start_leads_to_three_quarters_of_the_window_or_the_former_threshold(
    before: int, threshold: int
) -> None:
    connection = sent(10)
    connection.congestion.window, connection.congestion.threshold = 80, before
    connection.write(300, 10)
    connection.run(300)
    assert (connection.congestion.window, connection.congestion.threshold) == (40, threshold)


def test_a_pause_does_not_widen_a_window_that_is_smaller_than_an_initial_one() -> None:
    connection = sent(4)
    connection.congestion.window = connection.congestion.threshold = 4
    connection.write(2000, 10)
    assert connection.run(2000)[2000] == 4


def test_bbr_sends_in_bursts_of_two_at_2_885_times_ten_segments_in_a_round_trip() -> None:
    connection = sent(10, congestion=Bbr(40 * MS, "a"))
    apart_ns = round(2 * 40 * MS / 28.85)
    times_ns = [at_ns for at_ns, _ in connection.forth.packets]
    assert times_ns == pytest.approx([burst * apart_ns for burst in range(5) for _ in range(2)], abs=10)


@pytest.mark.parametrize("loses", [(), range(500, 3000, 100)])
def test_bbr_fills_a_line_whatever_is_lost_and_holds_hardly_more_than_twice_what_it_carries(
    loses: Collection[int],
) -> None:
    rate_bps, segments = 20_000_000, 3000
    connection = written(segments, loses, congestion=Bbr(40 * MS, "a"), rate_bps=rate_bps)
    in_flight = []
    while connection.events.handle_next_instant():
        in_flight.append(connection.sender.in_flight)
    carried = rate_bps * 0.04 / 8 / FRAME_BYTES
    assert 1.9 * carried < max(in_flight) < 2.885 * carried + 20
    took_ms, end = connection.in_order[-1]
    assert end == segments * PAYLOAD_BYTES
    assert 1000 * segments * FRAME_BYTES * 8 / rate_bps < took_ms < 1.2 * 1000 * segments * FRAME_BYTES * 8 / rate_bps


def test_after_a_pause_bbr_sends_as_if_there_had_been_none() -> None:
    def second_flight(at_ms: int) -> list[int]:
        connection = Connection(congestion=Bbr(40 * MS, "a"), rate_bps=FAST_BPS, restarts=False)
        connection.write(0, 10)
        connection.write(at_ms, 60)
        connection.run()
        return [at_ns - at_ms * MS for at_ns, _ in connection.forth.packets[10:]]

    assert second_flight(1000) == second_flight(100)


def test_a_probe_that_is_lost_too_is_followed_by_a_timeout() -> None:
    # 140 ms, then 40 + 200 ms and a tick.
    assert list(sent(10, loses=[8, 9, 10]).run())[:3] == [0, 138, 388]


def test_each_flight_that_loses_its_end_is_probed() -> None:
    connection = written(4, [3, 8], loses_back=[1, 5])
    connection.write(1000, 4)
    # The third segment was acknowledged after 180 ms, and two after 40: 1040 + 2 (40 + 140 / 8 * (7 / 8)^2) + 2 ms.
    assert list(connection.run())[:4] == [0, 138, 1000, 1158]


def measured(*times_ms: int) -> RoundTrips:
    round_trips = RoundTrips()
    for each in times_ms:
        round_trips.measure(each * MS, each * MS, 0, 0)
    return round_trips


def test_before_the_first_measurement_both_timers_last_a_second() -> None:
    nothing = RoundTrips()
    assert nothing.timeout_ns == nothing.probe_ns(1) == nothing.probe_ns(2) == 1000 * MS


@pytest.mark.parametrize(
    ("times_ms", "timeout_ms"),
    [
        # R + max(4 R / 2, 200 ms) at first.
        ([40], 40 + 200),
        ([100], 100 + 200),
        ([400], 400 + 800),
        # A variation beyond that counts at once; one below only once a round trip is over.
        ([400, 1200], 500 + 4 * (200 + (800 - 200) // 4)),
        ([400, 480], 410 + 800),
        ([80] * 20, 80 + 200),
    ],
)
def test_the_timeout_is_the_smoothed_round_trip_and_four_times_its_largest_variation(
    times_ms: list[int], timeout_ms: int
) -> None:
    assert measured(*times_ms).timeout_ns == timeout_ms * MS


def test_the_variation_decreases_by_a_quarter_of_its_distance_to_the_largest_of_a_round_trip() -> None:
    round_trips = measured(400)
    timeouts_ms = []
    for number in range(3):
        round_trips.measure(400 * MS, 400 * MS, una=number + 1, sent=number + 1)
        timeouts_ms.append(round_trips.timeout_ns / MS)
    # The mean of the variation is three quarters of the one before each time: 800, 600, 450, 337.5 ms.
    assert timeouts_ms == [400 + 800, 400 + 800 - (800 - 450) / 4, 400 + 712.5 - (712.5 - 337.5) / 4]


def test_a_probe_is_sent_after_two_round_trips_and_two_milliseconds_or_a_delayed_acknowledgement() -> None:
    round_trips = measured(40)
    assert round_trips.probe_ns(2) == round_trips.probe_ns(9) == (2 * 40 + 2) * MS
    assert round_trips.probe_ns(1) == (2 * 40 + 200) * MS


def test_the_least_time_is_kept_and_that_of_the_last_segment_acknowledged() -> None:
    round_trips = RoundTrips()
    for first_ms, last_ms in ((50, 45), (60, 40), (70, 55)):
        round_trips.measure(first_ms * MS, last_ms * MS, 0, 0)
    assert round_trips.least_ns == 40 * MS


@pytest.mark.parametrize(("times_ms", "waits_ms"), [([80], 10), ([16, 400], 4), ([400, 400, 8], 2)])
def test_a_late_segment_is_waited_for_an_eighth_of_the_smoothed_and_a_quarter_of_the_least_round_trip(
    times_ms: list[int], waits_ms: int
) -> None:
    assert measured(*times_ms).reordering_ns == waits_ms * MS


@pytest.mark.parametrize(
    ("from_ms", "wait_ms", "off_ms"), [(0, 0, 10), (0, 240, 250), (9, 240, 250), (10, 240, 260), (10, 241, 270)]
)
def test_a_timer_goes_off_a_tick_after_the_whole_ticks_that_its_time_is_rounded_up_to(
    from_ms: int, wait_ms: int, off_ms: int
) -> None:
    assert TICKS.goes_off_ns(from_ms * MS - SINCE_TICK_NS, wait_ms * MS) == off_ms * MS - SINCE_TICK_NS


@pytest.mark.parametrize(("greetings_ms", "since_ms"), [(0, 1), (20, 1), (4, 5), (8, 9), (10.5, 1.5), (320, 1)])
def test_training_begins_once_greetings_have_taken_their_time_after_the_tick_at_which_ranks_call_each_other(
    greetings_ms: float, since_ms: float
) -> None:
    ticks, since_ns = met_after(round(greetings_ms * MS)), round(since_ms * MS)
    assert (ticks.count(0), ticks.count(10 * MS - since_ns)) == (0, 1)
    assert ticks.goes_off_ns(0, 0) == 10 * MS - since_ns


def test_a_late_segment_is_waited_for_two_milliseconds_longer_in_ticks() -> None:
    assert late_segment_ns(TICKS, 40 * MS, 0) == (40 + 10 + 10) * MS - SINCE_TICK_NS
    assert late_segment_ns(TICKS, 40 * MS, 9 * MS) == (40 + 20 + 10) * MS - SINCE_TICK_NS


def test_a_full_buffer_is_sent_before_more_is_written_and_does_not_wait_for_the_acknowledgement_that_is_due() -> None:
    congestion = Cubic()
    congestion.window = 12
    connection = Connection(congestion=congestion, most_segments=4, rtt_ns=40 * MS)
    connection.write(0, 1)
    # The acknowledgement of the single segment could come now, but is delayed.
    connection.events.at(40 * MS, lambda now_ns, _: connection.sender.write(20 * PAYLOAD_BYTES, now_ns), None)
    connection.run(until_ms=41)
    assert [round(size_bytes / FRAME_BYTES) for _, size_bytes in connection.forth.packets] == [1, 2, 2, 2, 2, 2, 1]


def test_a_packet_of_the_other_direction_carries_the_acknowledgement_that_is_owed() -> None:
    other = written(1)
    one = Connection(events=other.events)
    for sends, receives in ((one, other), (other, one)):
        sends.sender.answer(receives.sender.receiver)
        receives.sender.receiver.answer(sends.sender.acknowledged)
    one.write(30, 1)
    one.run(until_ms=50)
    assert other.sender.in_flight == 0
    # The answer itself is acknowledged by a packet of its own, since nothing is sent any more.
    one.run()
    assert (len(other.back.packets), len(one.back.packets)) == (0, 1)
