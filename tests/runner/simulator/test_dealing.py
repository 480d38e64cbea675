import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.simulator.channel import PrivateChannel
from runner.simulator.dealing import NO_WAITING, Dealing, NarrowestConnection, Waiting
from runner.simulator.line import Line
from runner.simulator.tcp_window import TcpWindow

INITIAL = 14_480
WINDOW = 68_812
RTT_NS = 80_000_000


def test_of_sixteen_chunks_over_twelve_connections_four_carry_two() -> None:
    assert Dealing(12, 16, 16_384).most_bytes == 2 * 16_384


def test_chunks_that_go_evenly_leave_nobody_out() -> None:
    assert Dealing(4, 16, 1000).most_bytes == 4000


def test_connections_that_get_too_few_chunks_take_turns_and_open_only_after_a_round() -> None:
    narrowest, single = NarrowestConnection(None, INITIAL), Dealing(3, 1, 3 * INITIAL)
    # Each of the three carries one chunk before any of them has grown by it.
    assert [narrowest.waiting(single).rounds for _ in range(4)] == [1, 1, 1, 0]


def test_a_narrow_connection_that_is_dealt_the_most_waits_until_it_has_grown() -> None:
    narrowest = NarrowestConnection(WINDOW, INITIAL)
    dealing = Dealing(12, 16, 16_384)
    # Two chunks are more than ten segments, and at first more than what one chunk has let it grow to.
    assert [narrowest.waiting(dealing).rounds for _ in range(4)] == [1, 1, 0, 0]


def test_idle_makes_it_narrow_again() -> None:
    narrowest = NarrowestConnection(WINDOW, INITIAL)
    dealing = Dealing(12, 16, 16_384)
    for _ in range(2):
        narrowest.waiting(dealing)
    narrowest.halve()
    assert narrowest.waiting(dealing).rounds == 1


def test_one_that_is_as_wide_as_the_receiver_allows_is_not_narrow() -> None:
    narrowest = NarrowestConnection(INITIAL, INITIAL)
    assert narrowest.waiting(Dealing(2, 100, 16_384)) == NO_WAITING


@given(st.integers(2, 64), st.integers(1, 200), st.integers(1, 300_000), st.sampled_from([None, WINDOW]))
def test_nobody_waits_for_ever(connections: int, chunks: int, chunk_bytes: int, window: int | None) -> None:
    narrowest, dealing = NarrowestConnection(window, INITIAL), Dealing(connections, chunks, chunk_bytes)
    rounds = [narrowest.waiting(dealing).rounds for _ in range(40)]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[0] <= dealing.most_bytes // INITIAL + 1
    if chunks >= connections:
        assert rounds[-1] <= (0 if window is None else dealing.most_bytes // window)


def round_by_round(congestion: int, window: int, dealing: Dealing, turns: int) -> tuple[Waiting, int]:
    """The same, each round by itself: how long it waits, and the congestion window afterwards."""
    rounds, sent, burst, opening = 0, 0, 0, congestion
    while sent + min(opening, window) < dealing.most_bytes:
        burst = min(opening, window)
        rounds, sent, opening = rounds + 1, sent + burst, 2 * opening
    left = turns * dealing.chunk_bytes
    while left > 0:
        flown = min(congestion, window, left)
        if congestion < 2 * flown:
            congestion = min(congestion + flown, 2 * flown)
        left -= flown
    in_step = min(dealing.connections, dealing.chunks)
    waits = Waiting(rounds, max(in_step * burst, dealing.total_bytes - in_step * sent)) if rounds else NO_WAITING
    return waits, congestion


@given(st.integers(2, 64), st.integers(1, 5000), st.integers(1, 300_000), st.integers(1, 5))
def test_rounds_that_are_alike_are_counted_as_if_one_by_one(
    connections: int, chunks: int, chunk_bytes: int, transfers: int
) -> None:
    narrowest, dealing = NarrowestConnection(WINDOW, INITIAL), Dealing(connections, chunks, chunk_bytes)
    congestion = INITIAL
    for number in range(transfers):
        expected = NO_WAITING
        turns = chunks // connections or (number + 1) * chunks // connections - number * chunks // connections
        if congestion < WINDOW:
            expected, congestion = round_by_round(congestion, WINDOW, dealing, turns)
        assert narrowest.waiting(dealing) == expected


def test_terabytes_through_a_narrow_window_are_reckoned_at_once() -> None:
    waiting = NarrowestConnection(2 * INITIAL, INITIAL).waiting(Dealing(2, 2**42, 2**20))
    assert waiting.rounds == -(-(2**61 - INITIAL) // (2 * INITIAL))


def test_the_line_carries_the_bursts_of_all_connections_in_every_round() -> None:
    # 7 windows each: bursts of 1, 2 and 4 of them, the last round being the longest.
    even = Dealing(10, 70, INITIAL)
    assert NarrowestConnection(None, INITIAL).waiting(even) == Waiting(2, 10 * 4 * INITIAL)
    # One window more is left for a round of its own, and the one before was longer.
    assert NarrowestConnection(None, INITIAL).waiting(Dealing(10, 80, INITIAL)) == Waiting(3, 10 * 4 * INITIAL)


def test_the_last_byte_leaves_when_the_line_has_carried_the_last_round_of_all() -> None:
    rate_bps, size_bytes = 100_000_000, 70 * INITIAL
    line = Line(rate_bps, RTT_NS // 2, headers=False)
    window = TcpWindow(RTT_NS, None, 10 * INITIAL, narrowest=NarrowestConnection(None, INITIAL))
    channel = PrivateChannel(line, window)
    assert channel.transmit(0, size_bytes, Dealing(10, 70, INITIAL)) == (0, 2 * RTT_NS + line.duration_ns(40 * INITIAL))


@pytest.mark.parametrize("dealt", [True, False])
def test_a_transfer_is_late_by_what_its_unluckiest_connection_waits_and_the_next_one_is_not(dealt: bool) -> None:
    window = TcpWindow(RTT_NS, 12 * WINDOW, 12 * INITIAL, narrowest=NarrowestConnection(WINDOW, INITIAL))
    channel = PrivateChannel(Line(None, RTT_NS // 2, headers=False), window)
    dealing = Dealing(12, 16, 16_384) if dealt else None
    size_bytes = 16 * 16_384
    assert channel.transmit(0, size_bytes, dealing) == (0, RTT_NS)
    # All windows together would let the second one out at once.
    start_ns = 2 * RTT_NS
    assert channel.transmit(start_ns, size_bytes, dealing) == (start_ns, start_ns + (RTT_NS if dealt else 0))
    assert channel.transmit(start_ns, size_bytes, dealing)[0] == start_ns
