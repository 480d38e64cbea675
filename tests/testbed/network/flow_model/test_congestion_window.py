from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.tcp.channel import PrivateChannel
from testbed.network.flow_model.congestion_window import CongestionWindow, halvings
from testbed.network.flow_model.line import Line
from testbed.network.flow_model.window import opened
from testbed.network.tcp_settings import TcpSettings

INITIAL = 14_480
RTT_NS = 40_000_000
HELD = 500_000
"""The bytes that 100 Mbit/s carry in an RTT."""


def rounds(window: CongestionWindow, count: int) -> list[int]:
    """Return the window after a number of rounds, in each of which all of it is sent and acknowledged."""
    sizes = []
    for _ in range(count):
        size_bytes = window.size_bytes
        window.grow(size_bytes, size_bytes, 2 * size_bytes)
        sizes.append(window.size_bytes)
    return sizes


def test_slow_start_doubles_and_is_never_left_where_no_line_is_given() -> None:
    assert rounds(CongestionWindow(1, INITIAL, RTT_NS, None), 8) == [INITIAL * 2**power for power in range(1, 9)]


def test_a_lone_connection_leaves_slow_start_at_1_to_1_5_times_what_the_line_holds() -> None:
    sizes = rounds(CongestionWindow(1, INITIAL, RTT_NS, HELD), 8)
    left = next(size for size, wider in pairwise(sizes) if wider < 1.5 * size)
    assert HELD <= left <= 1.5 * HELD


@pytest.mark.parametrize("piece_bytes", [2_896, 25_000])
def test_acknowledged_in_pieces_it_leaves_after_half_a_round_trip_of_a_train(piece_bytes: int) -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, HELD, piecewise=True)
    sizes = [window.size_bytes]
    for _ in range(8):
        left_bytes = window.size_bytes
        while left_bytes:
            part_bytes = min(piece_bytes, left_bytes)
            window.grow(part_bytes, window.size_bytes, 2 * window.size_bytes, held_bytes=HELD)
            sizes.append(window.size_bytes)
            left_bytes -= part_bytes
    # In slow start a piece widens the window by its own size, later by a twentieth of it.
    left = next(size for size, wider in pairwise(sizes) if size > HELD // 2 and wider - size < piece_bytes // 10)
    assert HELD <= left <= 1.5 * HELD


def test_from_then_on_it_grows_by_a_twentieth() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, HELD)
    *_, size_bytes = rounds(window, 8)
    assert rounds(window, 1) == [size_bytes + size_bytes // 20]


def test_after_idle_it_comes_back_to_where_it_was_by_slow_start() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, HELD)
    *_, left = (size for size in rounds(window, 6) if size <= 1.5 * HELD)
    for _ in range(3):
        window.halve()
    sizes = [window.size_bytes, *rounds(window, 5)]
    assert sizes[0] < left / 6
    # Doubled as far as it had been, then a twentieth a round.
    assert max(size for size in sizes if size <= left) > 0.95 * left
    assert sizes[-1] < 1.2 * left


def test_of_several_that_send_in_step_some_leave_as_soon_as_they_wait_for_the_others() -> None:
    alone, group = CongestionWindow(1, INITIAL, RTT_NS, HELD), CongestionWindow(8, 8 * INITIAL, RTT_NS, HELD)
    assert rounds(alone, 3)[-1] == 8 * INITIAL
    assert rounds(group, 3)[-1] < 8 * 8 * INITIAL


def test_two_in_step_stay_in_slow_start_until_acknowledgements_are_a_long_train() -> None:
    window = CongestionWindow(2, 2 * INITIAL, RTT_NS, HELD)
    # Both wait for less than an eighth of a round trip in round 3, of 40 segments each; one waits longer in round 4.
    assert rounds(window, 3)[-1] == 8 * 2 * INITIAL
    four, five = rounds(window, 2)
    assert four == 16 * 2 * INITIAL
    assert 1.5 * four < five < 1.6 * four


def test_who_shares_the_line_leaves_as_on_a_slower_one() -> None:
    alone, sharing = (CongestionWindow(8, 8 * INITIAL, RTT_NS, held_bytes) for held_bytes in (HELD // 3, HELD))
    for _ in range(6):
        size_bytes = sharing.size_bytes
        alone.grow(size_bytes, size_bytes, 2 * size_bytes)
        sharing.grow(size_bytes, size_bytes, 2 * size_bytes, held_bytes=HELD // 3)
        assert sharing.size_bytes == alone.size_bytes


def test_where_two_segments_take_longer_than_two_milliseconds_acknowledgements_are_no_train() -> None:
    # 10 Mbit/s hold 34 segments: left at more than these and an eighth, not at half of them.
    held_bytes = HELD // 10
    sizes = rounds(CongestionWindow(1, INITIAL, RTT_NS, held_bytes), 5)
    assert sizes[:2] == [2 * INITIAL, 4 * INITIAL]
    assert sizes[2] == 40 * 1448 + 16 * 1448


@pytest.mark.parametrize("connections", [1, 4])
def test_after_an_outage_it_is_a_segment_and_comes_back_to_0_7_of_its_size_by_slow_start(connections: int) -> None:
    window = CongestionWindow(connections, connections * INITIAL, RTT_NS, None)
    *_, before = rounds(window, 5)
    window.lose(needless=False)
    assert window.size_bytes == connections * 1448
    sizes = rounds(window, 8)
    assert sizes[:7] == [connections * 1448 * 2**power for power in range(1, 8)]
    assert 0.7 * before < sizes[7] < 0.8 * before


def test_then_it_grows_like_cubics_which_is_back_at_its_size_after_the_cube_root_of_what_it_lost() -> None:
    rtt_ns, segments = 100_000_000, 160
    window = CongestionWindow(1, INITIAL, rtt_ns, None)
    assert rounds(window, 4)[-1] == segments * 1448
    window.lose(needless=True)
    # RFC 9438: K = cbrt(W_max (1 - 0.7) / 0.4) = 4.93 s, most of which it is nearly as large.
    sizes = rounds(window, 70)
    k_rounds = round((segments * 0.3 / 0.4) ** (1 / 3) / 0.1)
    assert sizes[k_rounds // 4] < 0.9 * segments * 1448
    assert sizes[k_rounds] == pytest.approx(segments * 1448, rel=0.03)
    assert sizes[-1] > 1.01 * segments * 1448


def test_after_a_needless_timeout_it_is_0_7_of_its_size() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, None)
    *_, before = rounds(window, 5)
    window.lose(needless=True)
    assert window.size_bytes == before * 70 // 100


@given(st.integers(1, 64), st.integers(0, 10**8), st.one_of(st.none(), st.integers(1, 10**9)), st.lists(st.booleans()))
def test_it_is_never_below_its_initial_size_nor_above_what_it_may_become(
    connections: int, rtt_ns: int, held: int | None, pauses: list[bool]
) -> None:
    window = CongestionWindow(connections, connections * INITIAL, rtt_ns, held)
    for pause in pauses:
        size_bytes = window.size_bytes
        if pause:
            window.halve()
            assert size_bytes // 2 - 1 <= window.size_bytes <= size_bytes
        else:
            window.grow(size_bytes, size_bytes, 3 * size_bytes // 2)
            assert size_bytes <= window.size_bytes <= 3 * size_bytes // 2
        assert window.size_bytes >= connections * INITIAL - 1


def test_cubic_is_slower_after_a_pause_than_reno_which_left_slow_start_never() -> None:
    """Transfers of twice what the line holds: cubic's window, hardly wider than that, is halved below it."""
    line, pause_ns = Line(100_000_000, RTT_NS // 2, headers=False), RTT_NS + 300_000_000

    def last_ns(congestion: str) -> int:
        channel = PrivateChannel(line, opened(line, 1, TcpSettings(2**24, congestion=congestion)))
        start_ns = end_ns = 0
        for _ in range(4):
            start_ns, end_ns = channel.transmit(end_ns + pause_ns, 2 * HELD)
        return end_ns - start_ns

    assert last_ns("reno") == line.duration_ns(2 * HELD)
    assert last_ns("cubic") > last_ns("reno")


@pytest.mark.parametrize(("idle_ms", "times"), [(281, 0), (299, 0), (300, 1), (580, 1), (589, 1), (590, 2), (880, 3)])
def test_idle_counts_in_ticks_of_the_kernels_clock(idle_ms: int, times: int) -> None:
    # A timeout of 280 ms is 29 ticks, since a round trip is never quite as short as its line.
    assert halvings(idle_ms * 1_000_000, 280_000_000) == times
