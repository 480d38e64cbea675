import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.recorded import check_recorded, digest
from wanbed.flow.channel import PrivateChannel
from wanbed.flow.congestion_window import CongestionWindow
from wanbed.flow.line import PAYLOAD_BYTES, Line
from wanbed.flow.striping import Striping
from wanbed.flow.window import BOUNDED, Delay, TcpWindow, let_out_bytes, opened
from wanbed.testbed.network.tcp_settings import TcpSettings

RTT_NS = 60_000_000
INITIAL = 14_480
WINDOW = 64_000


def slow_start(rtt_ns: int = RTT_NS, held_bytes: int | None = None) -> CongestionWindow:
    return CongestionWindow(1, INITIAL, rtt_ns, held_bytes)


def fast(window: TcpWindow) -> PrivateChannel:
    """Return a channel with an unlimited line, where only the window limits a transfer."""
    return PrivateChannel(Line(None, RTT_NS // 2, headers=False), window)


def rounds(window: TcpWindow, size_bytes: int, at_ns: int = 0) -> int:
    """Return the number of bursts, one in each RTT, in which the bytes leave."""
    start_ns, end_ns = fast(window).transmit(at_ns, size_bytes)
    return (end_ns - start_ns) // RTT_NS + 1


@pytest.mark.parametrize(("bursts", "more"), [(1, 0), (2, 1), (7, 0), (8, 1)])
def test_a_window_leaves_once_in_a_round_trip(bursts: int, more: int) -> None:
    window = TcpWindow(RTT_NS, WINDOW, None)
    assert rounds(window, (bursts - (1 if more else 0)) * WINDOW + more) == bursts


@pytest.mark.parametrize(
    ("window_bytes", "segments"), [(1, 2), (2896, 2), (5791, 2), (5792, 4), (48_168, 32), (33 * 1448, 32)]
)
def test_a_window_lets_out_whole_pairs_of_segments(window_bytes: int, segments: int) -> None:
    assert let_out_bytes(window_bytes, 1448) == segments * 1448


@pytest.mark.parametrize(("initial_windows", "bursts"), [(1, 1), (2, 2), (3, 2), (7, 3), (8, 4), (15, 4), (31, 5)])
def test_slow_start_doubles_what_leaves_in_every_round_trip(initial_windows: int, bursts: int) -> None:
    assert rounds(TcpWindow(RTT_NS, None, slow_start()), initial_windows * INITIAL) == bursts


def test_without_either_effect_everything_leaves_at_once() -> None:
    assert rounds(TcpWindow(RTT_NS, None, None), 10**12) == 1


def test_the_congestion_window_stops_growing_at_twice_what_can_be_in_flight() -> None:
    window = TcpWindow(RTT_NS, WINDOW, slow_start())
    channel = fast(window)
    _, end_ns = channel.transmit(0, 100 * WINDOW)
    # After one whole timeout it is halved, which leaves just the window: nothing is slower than before.
    assert rounds(window, 3 * WINDOW, end_ns + RTT_NS + 210_000_000) == 3


def test_so_it_does_while_the_line_is_slower_than_the_window() -> None:
    window = TcpWindow(RTT_NS, WINDOW, slow_start())
    for _ in range(20):
        window.sent_openly(0, WINDOW)
    assert window.allowance(300_000_000) == WINDOW, "twice as much, halved after one timeout"
    assert window.allowance(600_000_000) == WINDOW // 2


@pytest.mark.parametrize(("timeouts", "bursts"), [(0.9, 1), (1.1, 1), (2.2, 2), (3.3, 3), (50, 4)])
def test_idle_halves_the_congestion_window_for_every_timeout_down_to_the_initial_one(
    timeouts: float, bursts: int
) -> None:
    # 140 kB in flight at most: twice that, halved once, twice, three times; at last 14 segments' worth of slow start.
    window = TcpWindow(RTT_NS, 10 * INITIAL, slow_start())
    channel = fast(window)
    _, end_ns = channel.transmit(0, 100 * INITIAL)
    timeout_ns = RTT_NS + 200_000_000
    start_ns = end_ns + round(timeouts * timeout_ns)
    _, done_ns = channel.transmit(start_ns, 10 * INITIAL)
    assert (done_ns - start_ns) // RTT_NS + 1 == bursts


def test_who_waits_for_late_acknowledgements_is_not_idle() -> None:
    window, delay = TcpWindow(RTT_NS, None, slow_start()), Delay(10 * RTT_NS)
    window.sent(0, 0, window.allowance(0), delay, limited=True)
    assert window.next_credit_ns == 11 * RTT_NS
    assert window.allowance(11 * RTT_NS) == 2 * INITIAL


def test_a_new_connection_over_a_long_line_has_a_timeout_of_three_round_trips() -> None:
    rtt_ns = 160_000_000
    window = TcpWindow(rtt_ns, None, slow_start(rtt_ns))
    channel = PrivateChannel(Line(None, rtt_ns // 2, headers=False), window)
    channel.transmit(0, 3 * INITIAL)
    # Two rounds: 480 ms have come down to 430. Of RTT + 200 ms a pause of 780 ms would have been two.
    assert window.allowance(rtt_ns + 780_000_000) == 2 * INITIAL


def test_idle_changes_nothing_where_the_sysctl_is_off() -> None:
    window = TcpWindow(RTT_NS, 10 * INITIAL, slow_start(), restarts=False)
    channel = fast(window)
    _, end_ns = channel.transmit(0, 100 * INITIAL)
    _, done_ns = channel.transmit(end_ns + 10**12, 10 * INITIAL)
    assert done_ns == end_ns + 10**12


@given(
    st.integers(1_000, 10**6),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**7)), min_size=1, max_size=20),
    st.integers(10**6, 10**9),
)
def test_no_more_than_a_window_leaves_in_any_round_trip(
    window_bytes: int, transfers: list[tuple[int, int]], rate_bps: int
) -> None:
    sent: list[tuple[int, int, int]] = []

    class Noting(TcpWindow):
        __slots__ = ()

        def sent(
            self, start_ns: int, end_ns: int, size_bytes: int, delay: Delay | None = None, *, limited: bool = False
        ) -> None:
            sent.append((start_ns, end_ns, size_bytes))
            super().sent(start_ns, end_ns, size_bytes, delay, limited=limited)

    channel = PrivateChannel(Line(rate_bps, RTT_NS // 2, headers=False), Noting(RTT_NS, window_bytes, slow_start()))
    now_ns = 0
    for gap_ns, size_bytes in transfers:
        _, now_ns = channel.transmit(now_ns + gap_ns, min(size_bytes, 30 * window_bytes))
    for start_ns, _, _ in sent:
        within = sum(size for other_ns, end_ns, size in sent if start_ns <= other_ns and end_ns < start_ns + RTT_NS)
        assert within <= window_bytes


def test_the_rest_of_a_transfer_opens_the_window_too_where_congestion_has_held_it_up() -> None:
    window = TcpWindow(RTT_NS, None, slow_start())
    channel = fast(window)
    # 1, 2 and 1.6 initial windows: in all 4.6 are acknowledged, which makes 5.6 of them.
    assert rounds(window, 46 * INITIAL // 10) == 3
    _, end_ns = channel.transmit(300_000_000, 56 * INITIAL // 10)
    assert end_ns == 300_000_000


@pytest.mark.parametrize(
    ("latency_ns", "window", "bounded"), [(RTT_NS // 2, True, True), (RTT_NS // 2, False, False), (0, True, False)]
)
def test_a_window_bounds_what_is_sent_where_there_is_a_round_trip_to_wait_for(
    latency_ns: int, window: bool, bounded: bool
) -> None:
    line = Line(10**9, latency_ns, headers=False)
    made = opened(line, 2, TcpSettings(WINDOW), window=window, slow_start=False)
    assert (made.allowance(0) < BOUNDED) == bounded
    if bounded:
        assert made.allowance(0) == 2 * let_out_bytes(TcpSettings(WINDOW).window_bytes, PAYLOAD_BYTES)


def test_bytes_are_in_flight_for_a_round_trip_from_when_they_began_to_leave() -> None:
    window = TcpWindow(RTT_NS, WINDOW, None)
    assert window.allowance(0) == window.open_bytes == WINDOW
    window.sent(0, 10, 40_000)
    window.sent(20, 30, 24_000)
    assert window.in_flight_bytes == WINDOW
    assert window.allowance(RTT_NS - 1) == 0
    assert window.next_credit_ns == RTT_NS
    assert window.allowance(RTT_NS) == 40_000
    assert window.next_credit_ns == 20 + RTT_NS
    assert window.allowance(20 + RTT_NS) == WINDOW
    assert window.in_flight_bytes == 0


def test_bytes_that_leave_without_a_break_are_acknowledged_together_for_up_to_a_round_trip() -> None:
    window = TcpWindow(RTT_NS, WINDOW, None)
    window.sent(0, RTT_NS // 2, 100)
    window.sent(RTT_NS // 2, RTT_NS, 100)
    window.sent(RTT_NS, RTT_NS + 1, 100)
    assert window.flights() == [(0, RTT_NS), (RTT_NS, 2 * RTT_NS)]
    window.sent(RTT_NS + 2, RTT_NS + 3, 100)
    late = Delay(7)
    window.sent(RTT_NS + 3, RTT_NS + 4, 100, late)
    assert window.flights()[2:] == [(RTT_NS + 2, 2 * RTT_NS + 2), (RTT_NS + 3, 2 * RTT_NS + 3 + 7)]


@given(
    st.lists(st.tuples(st.integers(0, RTT_NS), st.integers(0, RTT_NS), st.integers(0, 30_000)), max_size=8),
    st.integers(0, 5 * RTT_NS),
)
def test_what_room_acknowledgements_will_have_made_can_be_asked_without_a_change(
    sends: list[tuple[int, int, int]], asked_ns: int
) -> None:
    window, now_ns = TcpWindow(RTT_NS, WINDOW, None), 0
    for gap_ns, lasts_ns, size_bytes in sends:
        delay = Delay(size_bytes)
        now_ns += gap_ns
        window.sent(now_ns, now_ns + lasts_ns, size_bytes, delay)
        now_ns += lasts_ns
    flights = window.flights()
    # Acknowledgements keep their order.
    expected = window.copied().allowance(asked_ns)
    assert window.allowance_without_growth(asked_ns) == expected
    assert window.flights() == flights


def test_what_was_sent_openly_is_not_in_flight_and_opens_the_window() -> None:
    window = TcpWindow(RTT_NS, None, slow_start())
    window.sent(0, 1, INITIAL, limited=True)
    window.sent_openly(5, INITIAL)
    assert (window.in_flight_bytes, window.flights()) == (0, [])
    assert window.allowance(5) == window.open_bytes == 2 * INITIAL


def test_a_window_is_open_for_what_it_lets_out_in_a_round_trip() -> None:
    window = TcpWindow(RTT_NS, WINDOW, None)
    assert window.opens_for(WINDOW)
    assert not window.opens_for(WINDOW + 1)
    assert TcpWindow(RTT_NS, None, None).open_bytes >= BOUNDED


@pytest.mark.parametrize(
    ("rtt_ms", "first_ms", "later_ms"), [(20, 200, 200), (100, 200, 200), (160, 320, 290), (400, 800, 650)]
)
def test_a_timeout_is_a_round_trip_and_twice_of_it_at_first_but_200_ms_at_least(
    rtt_ms: int, first_ms: int, later_ms: int
) -> None:
    window, ms = TcpWindow(rtt_ms * 1_000_000, None, slow_start(rtt_ms * 1_000_000)), 1_000_000
    assert window.timeout_ns == (rtt_ms + first_ms) * ms
    window.sent(0, 1, 100)
    window.sent(2, 3, 100)
    window.allowance(2 * rtt_ms * ms)
    # A round reduces what is above 200 ms by a quarter, however many bytes are acknowledged in it.
    assert window.timeout_ns == (rtt_ms + later_ms) * ms
    for each in range(2, 100):
        window.sent(each * rtt_ms * ms, each * rtt_ms * ms + 1, 100)
    window.allowance(101 * rtt_ms * ms)
    assert window.timeout_ns == pytest.approx((rtt_ms + 200) * ms, abs=10)


def test_acknowledgements_that_come_late_make_the_timeout_longer() -> None:
    idle_ns = 290_000_000
    for later_ns, narrower in ((0, 2), (40_000_000, 1)):
        window, delay = TcpWindow(RTT_NS, None, slow_start()), Delay(later_ns)
        for at_ns in (0, 2 * RTT_NS):
            window.sent(at_ns, at_ns, window.allowance(at_ns), delay, limited=True)
        window.allowance(4 * RTT_NS)
        assert window.timeout_ns == RTT_NS + 200_000_000 + later_ns
        assert window.allowance(2 * RTT_NS + idle_ns) == 4 * INITIAL // narrower


def test_a_changed_path_leaves_acknowledgements_that_are_under_way_as_they_are() -> None:
    window = TcpWindow(RTT_NS, WINDOW, slow_start())
    window.sent(0, 1, 100)
    window.sent(50, 51, 100)
    window.path_changes(RTT_NS + 1000, 0, 50)
    assert window.rtt_ns == RTT_NS + 1000
    assert [answered_ns for _, answered_ns in window.flights()] == [RTT_NS, 50 + RTT_NS + 1000]
    window.sent(60, 61, 100)
    assert window.flights()[-1] == (60, 60 + RTT_NS + 1000)


def test_after_a_loss_nothing_is_in_flight_and_the_window_is_a_segment_or_seven_tenths() -> None:
    for needless, left_bytes in ((False, 1448), (True, 8 * INITIAL * 7 // 10)):
        window = TcpWindow(RTT_NS, None, slow_start())
        _, end_ns = fast(window).transmit(0, 7 * INITIAL)
        assert window.allowance(end_ns + RTT_NS) == 8 * INITIAL
        window.sent(end_ns + RTT_NS, end_ns + RTT_NS, INITIAL)
        window.lose(end_ns + RTT_NS + 300_000_000, needless=needless)
        assert window.in_flight_bytes == 0
        # What was lost counts as sent until then: the window is not halved for idle, too.
        assert window.allowance(end_ns + RTT_NS + 300_000_000) == left_bytes
    constant = TcpWindow(RTT_NS, WINDOW, None)
    constant.sent(0, 0, WINDOW)
    constant.lose(5, needless=False)
    assert constant.allowance(5) == WINDOW


def test_what_is_answered_at_once_frees_the_window_and_does_not_open_it() -> None:
    window = TcpWindow(RTT_NS, None, slow_start())
    window.sent(0, 1, INITIAL)
    window.answered(5)
    assert window.flights() == []
    assert window.allowance(5) == INITIAL


def test_acknowledgements_that_waited_long_end_slow_start_where_a_line_has_a_rate() -> None:
    for held_bytes, factor in ((10**9, 21 / 20), (None, 2)):
        window, late = TcpWindow(RTT_NS, None, slow_start(held_bytes=held_bytes)), Delay(20_000_000)
        fast(window).transmit(0, 2 * INITIAL)
        now_ns = 2 * RTT_NS
        window.sent(now_ns, now_ns, window.allowance(now_ns), late, limited=True)
        left = window.open_bytes
        size_bytes = window.allowance(now_ns + RTT_NS + late.later_ns)
        window.sent(now_ns * 2, now_ns * 2, size_bytes, limited=True)
        assert left < size_bytes
        assert window.allowance(now_ns * 2 + RTT_NS) == pytest.approx(factor * size_bytes, rel=0.01)


Step = tuple[str, int]


def step(window: TcpWindow, now_ns: int, how: Step) -> None:
    what, amount = how
    if what == "send":
        late = Delay(amount * 100)
        size_bytes = max(window.allowance(now_ns), 0) * amount // 100
        window.sent(now_ns, now_ns + amount, size_bytes, late if amount % 3 else None, limited=amount > 50)
    elif what == "open":
        window.sent_openly(now_ns, amount * 1000)
    elif what == "lose":
        window.lose(now_ns, needless=amount % 2 == 0)
    elif what == "path":
        window.path_changes(RTT_NS + amount * 100_000, amount * 10_000, now_ns)
    else:
        window.last_byte_ns(now_ns, now_ns, Striping(4, amount, 10_000), Line(10**9, RTT_NS // 2, headers=False))


steps = st.lists(
    st.tuples(st.sampled_from(["send", "send", "open", "lose", "path", "stripe"]), st.integers(1, 100)), max_size=8
)


@given(steps, steps, st.booleans(), st.sampled_from([7 * RTT_NS // 10, 10 * RTT_NS]))
def test_a_copy_goes_on_alike_and_by_itself(before: list[Step], after: list[Step], slow: bool, apart_ns: int) -> None:
    line = Line(100_000_000, RTT_NS // 2, headers=False)
    window, now_ns = opened(line, 4, TcpSettings(2**20), slow_start=slow), 0
    for each in before:
        now_ns += apart_ns
        step(window, now_ns, each)

    def state(of: TcpWindow) -> tuple[object, ...]:
        waits_ns = of.copied().last_byte_ns(now_ns, now_ns, Striping(4, 9, 10_000), line)
        return of.open_bytes, of.in_flight_bytes, of.timeout_ns, of.flights(), waits_ns, of.rtt_ns

    copied, unchanged = window.copied(), state(window)
    assert state(copied) == unchanged
    begin_ns, states = now_ns, []
    for each in after:
        now_ns += apart_ns
        step(copied, now_ns, each)
        states.append(state(copied))
    now_ns = begin_ns
    assert state(window) == unchanged
    for each, expected in zip(after, states, strict=True):
        now_ns += apart_ns
        step(window, now_ns, each)
        assert state(window) == expected


def test_several_connections_are_narrow_for_chunks_that_are_wider_than_their_windows() -> None:
    line = Line(10**9, RTT_NS // 2, headers=False)
    several, one = (opened(line, count, TcpSettings(2**20)) for count in (4, 1))
    fits, wide = Striping(4, 4, INITIAL), Striping(4, 4, INITIAL + 1)
    assert [several.lets_out(each, 0) for each in (fits, wide, None)] == [True, False, True]
    assert [one.lets_out(each, 0) for each in (fits, wide, None)] == [True, True, True]
    # A second round, in which the line carries the chunks of all but one, and the byte that this one has left.
    assert several.last_byte_ns(10, 20, wide, line) == 10 + RTT_NS + line.duration_ns(3 * INITIAL + 1)
    assert several.last_byte_ns(10, 20, None, line) == 20
    assert one.last_byte_ns(10, 20, wide, line) == 20
    late_ns = 10 * RTT_NS
    assert opened(line, 4, TcpSettings(2**20)).last_byte_ns(10, late_ns, wide, line) == late_ns


def test_new_connections_have_ten_segments_each_and_windows_of_whole_pairs() -> None:
    line = Line(10**9, RTT_NS // 2, headers=False)
    settings = TcpSettings(2**20)
    assert opened(line, 3, settings).open_bytes == 3 * INITIAL
    assert opened(line, 3, settings, slow_start=False).open_bytes == 3 * let_out_bytes(
        settings.window_bytes, PAYLOAD_BYTES
    )
    assert opened(line, 3, settings, window=False, slow_start=False).open_bytes >= BOUNDED
    assert opened(line, 3, settings).timeout_ns == RTT_NS + 200_000_000
    assert opened(line, 3, settings, least_timeout_ns=300_000_000).timeout_ns == RTT_NS + 300_000_000
    # Segments are as long as frames are.
    jumbo = Line(10**9, RTT_NS // 2, headers=True, mtu_bytes=9001)
    assert opened(jumbo, 3, settings).open_bytes == 3 * 10 * 8949
    assert opened(jumbo, 3, settings, slow_start=False).open_bytes == 3 * let_out_bytes(settings.window_bytes, 8949)
    # The shortest round trip there is, and none.
    assert opened(Line(10**9, 1, headers=False, back_ns=0), 3, settings).open_bytes == 3 * INITIAL
    assert opened(Line(10**9, 0, headers=False), 3, settings).open_bytes >= BOUNDED


@pytest.mark.parametrize(("restarts", "windows"), [(True, 1), (False, 2)])
def test_connections_are_narrow_again_after_a_pause_unless_the_sysctl_is_off(restarts: bool, windows: int) -> None:
    line = Line(10**9, RTT_NS // 2, headers=False)
    window = opened(line, 2, TcpSettings(2**20, slow_start_after_idle=restarts))
    striping = Striping(2, 2, INITIAL)
    window.last_byte_ns(0, 0, striping, line)
    assert window.lets_out(Striping(2, 2, 2 * INITIAL), 1)
    assert window.lets_out(Striping(2, 2, windows * INITIAL), 10**10)
    assert not window.lets_out(Striping(2, 2, windows * INITIAL + 1), 10**10)


def test_drawn_sequences_leave_windows_as_they_left_them() -> None:
    found = {}
    for number in range(80):
        draw = random.Random(number)
        line = Line(draw.choice((None, 20_000_000, 100_000_000, 10**9)), RTT_NS // 2, headers=draw.random() < 0.5)
        settings = TcpSettings(draw.choice((2**16, 2**20, 2**23)))
        window, now_ns = opened(line, draw.randint(1, 5), settings, slow_start=draw.random() < 0.8), 0
        seen = []
        for _ in range(10):
            now_ns += draw.choice((RTT_NS // 3, RTT_NS, 2 * RTT_NS, 10 * RTT_NS))
            what = draw.choice(("send", "send", "send", "open", "lose", "path", "stripe"))
            step(window, now_ns, (what, draw.randint(1, 100)))
            seen.append((window.allowance(now_ns + RTT_NS // 2), window.timeout_ns, window.in_flight_bytes))
        found[f"sequence {number}"] = digest(repr(seen))
    check_recorded(Path(__file__).with_name("recorded_windows.txt"), found)
