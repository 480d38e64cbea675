from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.flow.channel import PrivateChannel
from wanbed.flow.congestion_window import CongestionWindow, halvings
from wanbed.flow.line import Line
from wanbed.flow.striping import Connections, Striping, Waiting
from wanbed.flow.window import TcpWindow

INITIAL = 14_480
WINDOW = 68_812
RTT_NS = 80_000_000
TIMEOUT_NS = 280_000_000


def rounds(connections: Connections, striping: Striping, times_ns: Sequence[int]) -> list[int]:
    """Return how many rounds the transfers that begin at these times wait. Each leaves at once."""
    found = []
    for time_ns in times_ns:
        found.append(connections.waiting(striping, time_ns).rounds)
        connections.sent(striping, time_ns)
    return found


def test_connections_that_get_too_few_chunks_take_turns_and_open_only_after_a_round() -> None:
    # Each of the three carries one chunk before any of them has grown by it.
    assert rounds(Connections(3, None, INITIAL), Striping(3, 1, 3 * INITIAL), range(4)) == [1, 1, 1, 0]


def test_of_sixteen_chunks_over_twelve_connections_four_carry_two() -> None:
    # Two chunks are more than ten segments, and at first more than what one chunk has let them grow to.
    assert rounds(Connections(12, WINDOW, INITIAL), Striping(12, 16, 16_384), range(4)) == [1, 1, 0, 0]


def test_idle_of_more_than_a_timeout_makes_connections_narrow_again() -> None:
    striping = Striping(12, 16, 16_384)
    connections = Connections(12, WINDOW, INITIAL, timeout_ns=TIMEOUT_NS)
    assert rounds(connections, striping, [0, 1, 2, TIMEOUT_NS + 2, 2 * TIMEOUT_NS + 20_000_003]) == [1, 1, 0, 0, 1]


def test_connections_that_take_turns_are_idle_although_the_group_is_not() -> None:
    # Each has its turn every fourth time, and has halved its window by then.
    between_ns = TIMEOUT_NS // 4 + 5_000_001
    times_ns = range(0, 40 * between_ns, between_ns)
    single = Striping(4, 1, 16_384)
    assert rounds(Connections(4, None, INITIAL, timeout_ns=TIMEOUT_NS), single, times_ns) == [1] * 40
    assert rounds(Connections(4, None, INITIAL), single, times_ns) == [1] * 4 + [0] * 36


def test_a_connection_is_narrow_only_for_chunks_wider_than_its_full_window() -> None:
    assert rounds(Connections(2, INITIAL, INITIAL), Striping(2, 2, INITIAL), range(3)) == [0, 0, 0]
    assert rounds(Connections(2, INITIAL, INITIAL), Striping(2, 2, INITIAL + 1), range(3)) == [1, 1, 1]


@given(st.integers(2, 64), st.integers(1, 200), st.integers(1, 300_000), st.sampled_from([None, WINDOW]))
def test_waiting_rounds_decrease_to_those_of_the_full_window(
    connections: int, chunks: int, chunk_bytes: int, window: int | None
) -> None:
    striping = Striping(connections, chunks, chunk_bytes)
    most_bytes = -(-chunks // connections) * chunk_bytes
    found = rounds(Connections(connections, window, INITIAL), striping, range(20 * connections))
    assert all(later <= earlier for earlier, later in pairwise(found[::connections]))
    assert found[0] <= most_bytes // INITIAL + 1
    assert found[-1] <= (0 if window is None else most_bytes // window)


def round_by_round(congestion: int, load_bytes: int) -> tuple[int, int]:
    """Compute the same round by round for one connection: the rounds that it waits, and its window afterwards."""
    count, sent, opening = 0, 0, congestion
    while sent + min(opening, WINDOW) < load_bytes:
        count, sent, opening = count + 1, sent + min(opening, WINDOW), 2 * opening
    left, held_up = load_bytes, False
    while left > 0:
        before, flown = congestion, min(congestion, WINDOW, left)
        if (held_up or flown == before) and before <= WINDOW:
            congestion += flown
        elif before < 2 * flown:
            congestion = min(before + flown, 2 * flown)
        held_up, left = flown == before, left - flown
    return count, congestion


@given(
    st.integers(2, 64),
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 100_000), st.integers(0, 3)), min_size=1, max_size=8),
)
def test_a_transfer_waits_for_the_slowest_of_the_connections_whose_turn_it_is(
    count: int, transfers: list[tuple[int, int, int]]
) -> None:
    connections = Connections(count, WINDOW, INITIAL, timeout_ns=TIMEOUT_NS)
    # Of each, the longest unused first: when it was used last, and its window.
    each, now_ns = [(0, INITIAL)] * count, 0
    for chunks, chunk_bytes, idle in transfers:
        now_ns += idle * (TIMEOUT_NS + 15_000_000)
        striping, expected = Striping(count, chunks, chunk_bytes), 0
        used = []
        for turn in range(min(count, chunks)):
            last_ns, congestion = each[turn]
            for _ in range(halvings(now_ns - last_ns, TIMEOUT_NS)):
                congestion = max(congestion // 2, INITIAL)
            waits, congestion = round_by_round(congestion, len(range(turn, chunks, count)) * chunk_bytes)
            expected = max(expected, waits)
            used.append((now_ns, congestion))
        each = each[len(used) :] + used
        if chunks >= count:
            each = each[chunks % count :] + each[: chunks % count]
        assert connections.waiting(striping, now_ns).rounds == expected
        connections.sent(striping, now_ns)


def test_terabytes_through_a_narrow_window_are_reckoned_at_once() -> None:
    waiting = Connections(2, 2 * INITIAL, INITIAL).waiting(Striping(2, 2**42, 2**20), 0)
    assert waiting.rounds == -(-(2**61 - INITIAL) // (2 * INITIAL))


def test_the_line_carries_the_bursts_of_all_connections_in_every_round() -> None:
    # 7 windows each: bursts of 1, 2 and 4 of them, the last round being the longest.
    assert Connections(10, None, INITIAL).waiting(Striping(10, 70, INITIAL), 0) == Waiting(2, 40 * INITIAL)
    # One window more is left for a round of its own, which the last connection begins when nine have sent four each.
    assert Connections(10, None, INITIAL).waiting(Striping(10, 80, INITIAL), 0) == Waiting(3, 37 * INITIAL)


def test_the_last_byte_leaves_when_the_line_has_carried_the_last_round_of_all() -> None:
    rate_bps, size_bytes = 100_000_000, 70 * INITIAL
    line = Line(rate_bps, RTT_NS // 2, headers=False)
    window = TcpWindow(
        RTT_NS, None, CongestionWindow(1, 10 * INITIAL, RTT_NS, None), each=Connections(10, None, INITIAL)
    )
    channel = PrivateChannel(line, window)
    assert channel.transmit(0, size_bytes, Striping(10, 70, INITIAL)) == (
        0,
        2 * RTT_NS + line.duration_ns(40 * INITIAL),
    )


@pytest.mark.parametrize("striped", [True, False])
def test_the_narrowest_connection_delays_its_transfer_and_not_the_next(striped: bool) -> None:
    window = TcpWindow(
        RTT_NS, 12 * WINDOW, CongestionWindow(1, 12 * INITIAL, RTT_NS, None), each=Connections(12, WINDOW, INITIAL)
    )
    channel = PrivateChannel(Line(None, RTT_NS // 2, headers=False), window)
    striping = Striping(12, 16, 16_384) if striped else None
    size_bytes = 16 * 16_384
    assert channel.transmit(0, size_bytes, striping) == (0, RTT_NS)
    # All windows together would let the second one out at once.
    start_ns = 2 * RTT_NS
    assert channel.transmit(start_ns, size_bytes, striping) == (start_ns, start_ns + (RTT_NS if striped else 0))
    assert channel.transmit(start_ns, size_bytes, striping)[0] == start_ns


def test_a_connection_that_has_sent_all_two_rounds_earlier_does_not_delay_the_last_round() -> None:
    connections = Connections(2, None, INITIAL)
    assert connections.waiting(Striping(2, 1, 7 * INITIAL), 0) == Waiting(2, 4 * INITIAL)
    connections.sent(Striping(2, 1, 7 * INITIAL), 0)
    # The first one lets out all of its chunk now; the other begins with 1 and 2 windows.
    assert connections.waiting(Striping(2, 2, 7 * INITIAL), 1) == Waiting(2, 4 * INITIAL)


def test_each_connection_lets_its_chunks_out_at_once_if_its_congestion_window_is_as_wide() -> None:
    new = Connections(4, INITIAL, INITIAL)
    # Of five chunks the first connection carries two.
    assert new.let_out(Striping(4, 5, INITIAL // 2), 0)
    assert not Connections(4, None, INITIAL).let_out(Striping(4, 5, INITIAL // 2 + 1), 0)
    assert not Connections(4, None, INITIAL).let_out(Striping(4, 1, INITIAL + 1), 0)
    # A receive window is not asked for.
    assert new.let_out(Striping(4, 4, 2 * INITIAL), 0)


def test_only_the_connections_whose_turn_it_is_have_to_be_wide() -> None:
    connections = Connections(3, None, INITIAL, timeout_ns=TIMEOUT_NS)
    wide = Striping(3, 1, 2 * INITIAL)
    connections.waiting(wide, 0)
    connections.sent(wide, 0)
    # The second and the third one are new; then it is the first one's turn again, which has grown.
    for expected in (False, False, True):
        assert connections.let_out(wide, 1) is expected
        connections.waiting(wide, 1)
        connections.sent(wide, 1)
    assert not Connections(3, None, INITIAL, timeout_ns=TIMEOUT_NS).let_out(wide, 10 * TIMEOUT_NS)


def test_to_ask_changes_nothing() -> None:
    connections = Connections(3, WINDOW, INITIAL, timeout_ns=TIMEOUT_NS)
    for _ in range(3):
        connections.let_out(Striping(3, 4, 5 * INITIAL), 0)
    assert connections.waiting(Striping(3, 4, 5 * INITIAL), 0) == Connections(3, WINDOW, INITIAL).waiting(
        Striping(3, 4, 5 * INITIAL), 0
    )
