from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.flow.channel import PrivateChannel
from wanbed.flow.congestion_window import CongestionWindow, halvings
from wanbed.flow.line import Line
from wanbed.flow.window import opened
from wanbed.testbed.network.tcp_settings import TcpSettings

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


def test_a_lone_connection_leaves_slow_start_when_half_of_what_the_line_holds_has_been_acknowledged() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, HELD)
    sizes = rounds(window, 7)
    # Of 32 initial windows half a line's worth opens it: until then the train of acknowledgements is too short.
    assert sizes[4] == 32 * INITIAL
    assert sizes[5] == 32 * INITIAL + HELD // 2
    assert sizes[6] == sizes[5] + sizes[5] // 20


def test_a_window_grows_by_what_is_acknowledged_to_what_it_may_be_and_no_further() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, None)
    window.grow(1000, INITIAL, INITIAL + 3000)
    window.grow(1000, INITIAL, INITIAL + 3000)
    assert window.size_bytes == INITIAL + 2000
    window.grow(5000, INITIAL, INITIAL + 3000)
    assert window.size_bytes == INITIAL + 3000
    window.grow(5000, INITIAL, INITIAL)
    assert window.size_bytes == INITIAL + 3000


def settled(segments: int, rtt_ns: int = RTT_NS) -> CongestionWindow:
    """Return the window of a connection that has left slow start with so many segments, never having lost any."""
    window = CongestionWindow(1, INITIAL, rtt_ns, 10**9)
    window.grow(segments * 1448 - INITIAL, segments * 1448, 10**9)
    window.path_changes(2 * rtt_ns, 10**9)
    window.path_changes(rtt_ns, 10**9)
    assert window.size_bytes == segments * 1448
    assert rounds(window.copied(), 1) == [segments * 1448 * 21 // 20]
    return window


@pytest.mark.parametrize(("rtt_ms", "late_ms"), [(16, 4), (40, 5), (128, 16), (400, 16)])
def test_acknowledgements_that_are_late_by_an_eighth_of_a_round_trip_or_4_or_16_ms_end_slow_start(
    rtt_ms: int, late_ms: int
) -> None:
    sizes = []
    for later_ns in (late_ms * 1_000_000, late_ms * 1_000_000 + 1):
        window = CongestionWindow(1, INITIAL, rtt_ms * 1_000_000, 10**9)
        rounds(window, 2)
        window.grow(4 * INITIAL, 4 * INITIAL, 10**9, later_ns)
        sizes.append([window.size_bytes, *rounds(window, 1)])
    # Eight acknowledgements of two segments show it.
    noticed = 4 * INITIAL + 16 * 1448
    assert sizes == [[8 * INITIAL, 16 * INITIAL], [noticed, noticed + noticed // 20]]


@pytest.mark.parametrize(("segments", "ends"), [(15, False), (16, True)])
def test_fewer_than_16_segments_in_flight_do_not_tell_whether_acknowledgements_are_late(
    segments: int, ends: bool
) -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, 10**9)
    rounds(window, 1)
    window.grow(100, segments * 1448, 10**9, RTT_NS)
    size_bytes = window.size_bytes
    assert rounds(window, 1) == [size_bytes * 21 // 20 if ends else 2 * size_bytes]


@pytest.mark.parametrize(("later_ns", "ends"), [(5_000_000, False), (5_000_001, True)])
def test_a_path_that_becomes_longer_by_an_eighth_of_its_shortest_round_trip_ends_slow_start(
    later_ns: int, ends: bool
) -> None:
    window, never = CongestionWindow(1, INITIAL, RTT_NS, 10**9), CongestionWindow(1, INITIAL, RTT_NS, None)
    for each in (window, never):
        rounds(each, 1)
        # The shortest one ever counts, not the last one.
        each.path_changes(RTT_NS + 3_000_000, 10**9)
        each.path_changes(RTT_NS + later_ns, 10**9)
    assert rounds(window, 1) == [2 * INITIAL * 21 // 20 if ends else 4 * INITIAL]
    assert rounds(never, 1) == [4 * INITIAL]


def test_a_path_that_becomes_shorter_shortens_what_counts_as_late() -> None:
    for later_ns, ends in ((4_000_000, False), (4_000_001, True)):
        window = CongestionWindow(1, INITIAL, RTT_NS, 10**9)
        rounds(window, 1)
        window.path_changes(RTT_NS // 2, 10**9)
        window.path_changes(RTT_NS // 2 + later_ns, 10**9)
        assert rounds(window, 1) == [2 * INITIAL * 21 // 20 if ends else 4 * INITIAL]


def test_a_longer_path_does_not_end_slow_start_with_fewer_than_16_segments() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, 10**9)
    window.path_changes(2 * RTT_NS, 10**9)
    assert rounds(window, 1) == [2 * INITIAL]


def test_what_a_changed_path_holds_decides_where_slow_start_ends() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, 10**9)
    window.path_changes(RTT_NS, HELD)
    assert rounds(window, 6)[-1] == 32 * INITIAL + HELD // 2


def test_a_group_part_of_which_has_left_slow_start_grows_to_what_it_may_be_too() -> None:
    window = CongestionWindow(8, 8 * INITIAL, RTT_NS, HELD)
    *_, size_bytes = rounds(window, 3)
    assert 4 * 8 * INITIAL < size_bytes < 8 * 8 * INITIAL
    window.grow(size_bytes, size_bytes, size_bytes + size_bytes // 3)
    assert window.size_bytes == size_bytes + size_bytes // 3


def test_after_idle_slow_start_leads_to_the_former_size_exactly() -> None:
    window = settled(160)
    window.halve()
    assert window.size_bytes == 80 * 1448
    assert rounds(window, 2) == [160 * 1448, 160 * 1448 * 21 // 20]


def test_a_window_that_has_grown_far_since_comes_back_to_three_quarters_by_slow_start() -> None:
    window = settled(160)
    while window.size_bytes < 2 * 160 * 1448:
        rounds(window, 1)
    before = window.size_bytes
    window.halve()
    half, threshold = before // 2, 3 * before // 4
    assert window.size_bytes == half
    assert rounds(window, 1)[0] == pytest.approx(threshold + (before - threshold) / 20, abs=2)


def test_it_is_halved_down_to_its_initial_size_which_it_knows() -> None:
    for window in (CongestionWindow(1, INITIAL, RTT_NS, None), settled(30)):
        assert window.is_initial == (window.size_bytes == INITIAL)
        rounds(window, 1)
        assert not window.is_initial
        for _ in range(3):
            window.halve()
        assert window.is_initial
        assert window.size_bytes == INITIAL


def test_two_losses_one_after_the_other_make_room_for_others() -> None:
    """Fast convergence, RFC 9438, section 4.7: the plateau is (1 + 0.7) / 2 of the window at the second loss."""
    rtt_ns = 100_000_000
    window = settled(1000, rtt_ns)
    window.lose(needless=True)
    window.lose(needless=True)
    assert window.size_bytes == 490 * 1448
    plateau = 700 * 0.85
    k_s = ((plateau - 490) / 0.4) ** (1 / 3)
    sizes = rounds(window, 100)
    for number, size_bytes in enumerate(sizes, 1):
        # W(t) = C (t - K)^3 + W_max, but no slower than Reno's.
        cubic = 0.4 * (number * 0.1 - k_s) ** 3 + plateau
        assert size_bytes / 1448 == pytest.approx(max(cubic, 490 + number * 9 / 17), rel=0.02)


def test_as_large_a_window_at_the_next_loss_is_where_it_comes_back_to() -> None:
    window = settled(1000, 100_000_000)
    window.lose(needless=True)
    while window.size_bytes < 1001 * 1448:
        rounds(window, 1)
    before = window.size_bytes / 1448
    window.lose(needless=True)
    k_s = (before * 0.3 / 0.4) ** (1 / 3)
    assert rounds(window, round(k_s / 0.1))[-1] / 1448 == pytest.approx(before, rel=0.01)


def test_a_small_window_grows_with_renos_after_a_loss() -> None:
    window = settled(20, 10_000_000)
    window.lose(needless=True)
    # RFC 9438, section 4.3: 3 (1 - 0.7) / (1 + 0.7) = 9 / 17 segments a round.
    assert rounds(window, 34)[-1] / 1448 == pytest.approx(14 + 34 * 9 / 17, rel=0.02)


def test_no_window_grows_by_more_than_half_of_itself_in_a_round_after_a_loss() -> None:
    window = settled(160, 4 * 10**9)
    window.lose(needless=True)
    assert [round(size / 1448) for size in rounds(window, 3)] == [112 * 3 // 2, 112 * 9 // 4, 112 * 27 // 8]


def test_a_loss_leaves_two_segments_as_the_least_that_slow_start_leads_to() -> None:
    window = CongestionWindow(1, INITIAL, RTT_NS, None)
    window.lose(needless=False)
    window.lose(needless=True)
    assert window.size_bytes == 2 * 1448


@given(st.integers(2, 50), st.lists(st.sampled_from(["grow", "halve", "lose", "needless"]), max_size=20))
def test_connections_without_a_line_of_their_own_have_as_many_times_the_window_of_one(
    connections: int, changes: list[str]
) -> None:
    one = CongestionWindow(1, INITIAL, RTT_NS, None)
    many = CongestionWindow(connections, connections * INITIAL, RTT_NS, None)
    for change in changes:
        for window in (one, many):
            if change == "grow":
                rounds(window, 1)
            elif change == "halve":
                window.halve()
            else:
                window.lose(needless=change == "needless")
        assert many.size_bytes == pytest.approx(connections * one.size_bytes, rel=0.01)


Change = tuple[str, int]


def change(window: CongestionWindow, how: Change) -> None:
    what, amount = how
    if what == "grow":
        window.grow(window.size_bytes * amount // 10, window.size_bytes, 10**8, amount * 1_000_000, amount * 10**5)
    elif what == "halve":
        window.halve()
    elif what == "lose":
        window.lose(needless=amount % 2 == 0)
    else:
        window.path_changes(RTT_NS * amount, HELD * amount)


changes = st.lists(st.tuples(st.sampled_from(["grow", "grow", "halve", "lose", "path"]), st.integers(1, 10)))


@given(st.integers(1, 8), st.sampled_from([None, HELD]), st.booleans(), changes, changes)
def test_a_copy_goes_on_alike_and_by_itself(
    connections: int, held: int | None, piecewise: bool, before: list[Change], after: list[Change]
) -> None:
    window = CongestionWindow(connections, connections * INITIAL, RTT_NS, held, piecewise=piecewise)
    for each in before:
        change(window, each)
    copied, size_bytes = window.copied(), window.size_bytes
    sizes = []
    for each in after:
        change(copied, each)
        sizes.append(copied.size_bytes)
    assert window.size_bytes == size_bytes
    for each, size in zip(after, sizes, strict=True):
        change(window, each)
        assert window.size_bytes == size
