import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.tcp.channel import PrivateChannel
from testbed.network.flow_model.line import Line
from testbed.network.flow_model.window import BOUNDED, Delay, TcpWindow, let_out_bytes, opened
from testbed.network.tcp_settings import TcpSettings

RTT_NS = 60_000_000
INITIAL = 14_480
WINDOW = 64_000


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
    assert let_out_bytes(window_bytes) == segments * 1448


@pytest.mark.parametrize(("initial_windows", "bursts"), [(1, 1), (2, 2), (3, 2), (7, 3), (8, 4), (15, 4), (31, 5)])
def test_slow_start_doubles_what_leaves_in_every_round_trip(initial_windows: int, bursts: int) -> None:
    assert rounds(TcpWindow(RTT_NS, None, INITIAL), initial_windows * INITIAL) == bursts


def test_without_either_effect_everything_leaves_at_once() -> None:
    assert rounds(TcpWindow(RTT_NS, None, None), 10**12) == 1


def test_the_congestion_window_stops_growing_at_twice_what_can_be_in_flight() -> None:
    window = TcpWindow(RTT_NS, WINDOW, INITIAL)
    channel = fast(window)
    _, end_ns = channel.transmit(0, 100 * WINDOW)
    # After one whole timeout it is halved, which leaves just the window: nothing is slower than before.
    assert rounds(window, 3 * WINDOW, end_ns + RTT_NS + 210_000_000) == 3


def test_so_it_does_while_the_line_is_slower_than_the_window() -> None:
    window = TcpWindow(RTT_NS, WINDOW, INITIAL)
    for _ in range(20):
        window.sent_openly(0, WINDOW)
    assert window.allowance(300_000_000) == WINDOW, "twice as much, halved after one timeout"
    assert window.allowance(600_000_000) == WINDOW // 2


@pytest.mark.parametrize(("timeouts", "bursts"), [(0.9, 1), (1.1, 1), (2.2, 2), (3.3, 3), (50, 4)])
def test_idle_halves_the_congestion_window_for_every_timeout_down_to_the_initial_one(
    timeouts: float, bursts: int
) -> None:
    # 140 kB in flight at most: twice that, halved once, twice, three times; at last 14 segments' worth of slow start.
    window = TcpWindow(RTT_NS, 10 * INITIAL, INITIAL)
    channel = fast(window)
    _, end_ns = channel.transmit(0, 100 * INITIAL)
    timeout_ns = RTT_NS + 200_000_000
    start_ns = end_ns + round(timeouts * timeout_ns)
    _, done_ns = channel.transmit(start_ns, 10 * INITIAL)
    assert (done_ns - start_ns) // RTT_NS + 1 == bursts


def test_who_waits_for_late_acknowledgements_is_not_idle() -> None:
    window, delay = TcpWindow(RTT_NS, None, INITIAL), Delay()
    delay.later_ns = 10 * RTT_NS
    window.sent(0, 0, window.allowance(0), delay, limited=True)
    assert window.next_credit_ns == 11 * RTT_NS
    assert window.allowance(11 * RTT_NS) == 2 * INITIAL


def test_a_new_connection_over_a_long_line_has_a_timeout_of_three_round_trips() -> None:
    rtt_ns = 160_000_000
    window = TcpWindow(rtt_ns, None, INITIAL)
    channel = PrivateChannel(Line(None, rtt_ns // 2, headers=False), window)
    channel.transmit(0, 3 * INITIAL)
    # Two rounds: 480 ms have come down to 430. Of RTT + 200 ms a pause of 780 ms would have been two.
    assert window.allowance(rtt_ns + 780_000_000) == 2 * INITIAL


def test_idle_changes_nothing_where_the_sysctl_is_off() -> None:
    window = TcpWindow(RTT_NS, 10 * INITIAL, INITIAL, restarts=False)
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

    channel = PrivateChannel(Line(rate_bps, RTT_NS // 2, headers=False), Noting(RTT_NS, window_bytes, INITIAL))
    now_ns = 0
    for gap_ns, size_bytes in transfers:
        _, now_ns = channel.transmit(now_ns + gap_ns, min(size_bytes, 30 * window_bytes))
    for start_ns, _, _ in sent:
        within = sum(size for other_ns, end_ns, size in sent if start_ns <= other_ns and end_ns < start_ns + RTT_NS)
        assert within <= window_bytes


def test_the_rest_of_a_transfer_opens_the_window_too_where_congestion_has_held_it_up() -> None:
    window = TcpWindow(RTT_NS, None, INITIAL)
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
        assert made.allowance(0) == 2 * let_out_bytes(TcpSettings(WINDOW).in_flight_bytes)
