from functools import partial

import pytest

from tests.support.simulator.events import run_all
from wanbed.runner.simulator.channels.transfers import OwnTransfers, SharedTransfers
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.window import TcpWindow

MS = 1_000_000
FREE = Line(None, 0, headers=False)

RATE_BPS = 8 * 10**9
"""A line that carries one byte per nanosecond."""


def channel(latency_ns: int = 0) -> PrivateChannel:
    return PrivateChannel(Line(RATE_BPS, latency_ns, headers=False), TcpWindow(2 * latency_ns, None, None))


def shared(
    count: int, size_bytes: int, turns: tuple[tuple[int, int], ...] = (), inside: Line = FREE
) -> SharedTransfers:
    return SharedTransfers(EventQueue(), [channel(5) for _ in range(count)], size_bytes, 10, inside, inside, turns)


Offer = tuple[int, int, int]
"""Time, mate and microbatch of a transfer."""


def told_of(transfers: SharedTransfers | OwnTransfers, offers: list[Offer]) -> dict[tuple[int, int], int]:
    """Return when the last byte of each (mate, microbatch) arrives."""
    there: dict[tuple[int, int], int] = {}

    def note(which: tuple[int, int], _left: int, _gone: int, _there: int, whole_ns: int) -> None:
        there[which] = whole_ns

    events = EventQueue() if isinstance(transfers, OwnTransfers) else transfers.events
    for offer in offers:
        events.at(offer[0], lambda now_ns, which: transfers.offer(now_ns, *which, partial(note, which)), offer[1:])
    run_all(events)
    return there


def test_transfers_of_ones_own_follow_each_other() -> None:
    assert told_of(OwnTransfers(channel(5), 100), [(0, 0, 0), (0, 0, 1), (300, 0, 2)]) == {
        (0, 0): 105,
        (0, 1): 205,
        (0, 2): 405,
    }


def test_a_shared_transfer_takes_its_part_of_the_time() -> None:
    assert told_of(shared(4, 400), [(0, 0, 0)]) == {(0, 0): 105}


def test_the_pipelines_of_a_cell_take_turns_in_plan_order_whatever_comes_first() -> None:
    turns = ((1, 0), (0, 0), (0, 1), (1, 1))
    offers = [(0, 0, 0), (10, 1, 0), (10, 0, 1), (500, 1, 1)]
    there = told_of(shared(2, 200, turns), offers)
    # The first to be ready waits for the one whose turn it is.
    assert there == {(1, 0): 115, (0, 0): 215, (0, 1): 315, (1, 1): 605}


def test_turns_begin_again_with_the_next_iteration() -> None:
    there = told_of(shared(2, 200, ((0, 0), (1, 0))), [(0, 1, 0), (0, 0, 0), (900, 0, 0), (900, 1, 0)])
    assert there == {(0, 0): 1005, (1, 0): 1105}


def test_without_turns_they_go_as_they_come() -> None:
    assert told_of(shared(2, 200), [(0, 1, 0), (0, 0, 0)]) == {(1, 0): 105, (0, 0): 205}


def test_scatter_and_gather_overlap_with_the_wan_but_for_a_chunk_on_either_side() -> None:
    inside = Line(10 * RATE_BPS, 3, headers=False)
    # Half of 2000 bytes takes a mate's channel 1000 ns; its first chunk is there after 3 + 1 ns, and the last one is
    # handed over in as much; 5 ns are the WAN's latency.
    assert told_of(shared(2, 2000, inside=inside), [(0, 0, 0)]) == {(0, 0): 1000 + 4 + 5 + 4}


@pytest.mark.parametrize("slower", [1, 2])
def test_where_the_network_inside_is_the_slower_one_it_sets_the_pace(slower: int) -> None:
    inside = Line(RATE_BPS // slower, 0, headers=False)
    # Half of the bytes has to leave the sender's port, and to come in at the receiver's.
    (there_ns,) = told_of(shared(2, 2000, inside=inside), [(0, 0, 0)]).values()
    assert 1000 * slower + 5 <= there_ns <= 1000 * slower + 5 + 4 * 10 * slower


def test_without_turns_own_transfers_go_before_those_still_arriving_from_a_mate() -> None:
    there = told_of(shared(2, 200, inside=Line(None, 50, headers=False)), [(0, 0, 0), (10, 1, 0)])
    # Own halves have left by 100 and 110; those of the other wait for them, and are handed over in 50.
    assert there == {(0, 0): 110 + 100 + 5 + 50, (1, 0): 100 + 100 + 5 + 50}


def test_with_turns_a_transfer_waits_for_its_turn_while_the_one_before_arrives() -> None:
    inside = Line(None, 50, headers=False)
    there = told_of(shared(2, 200, ((0, 0), (1, 0)), inside=inside), [(0, 0, 0), (10, 1, 0)])
    assert there == {(0, 0): 150 + 5 + 50, (1, 0): 200 + 5 + 50}


def test_where_the_way_to_a_mate_is_the_slowest_it_decides_when_a_transfer_has_left() -> None:
    inside = Line(RATE_BPS // 10, 3, headers=False)
    # Half of 2000 bytes takes 10,000 ns to the mate; its last chunk of 10 bytes then has to go over the WAN, 10 + 5 ns,
    # and from the mate to the receiver, 3 + 100 ns.
    assert told_of(shared(2, 2000, inside=inside), [(0, 0, 0)]) == {(0, 0): 3 + 10_000 + 10 + 5 + 3 + 100}
