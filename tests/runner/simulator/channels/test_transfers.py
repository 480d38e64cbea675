from collections.abc import Callable
from functools import partial

import pytest

from tests.support.simulator.events import run_all
from wanbed.flow.channel import PrivateChannel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.window import TcpWindow
from wanbed.runner.simulator.channels.transfers import OwnTransfers, SharedTransfers

MS = 1_000_000
FREE, FAR_INSIDE = (Line(None, latency_ns, headers=False) for latency_ns in (0, 50))

RATE_BPS = 8 * 10**9
"""A line that carries one byte per nanosecond."""


def channel(latency_ns: int = 0) -> PrivateChannel:
    return PrivateChannel(Line(RATE_BPS, latency_ns, headers=False), TcpWindow(2 * latency_ns, None, None))


def shared(
    count: int, size_bytes: int, turns: tuple[tuple[int, int], ...] = (), inside: Line = FREE
) -> SharedTransfers:
    channels = [channel(5) for _ in range(count)]
    return SharedTransfers(EventQueue(), channels, size_bytes, 10, scatter=inside, gather=inside, turns=turns)


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


@pytest.mark.parametrize(
    ("transfers", "offers", "there"),
    [
        pytest.param(
            lambda: OwnTransfers(channel(5), 100),
            [(0, 0, 0), (0, 0, 1), (300, 0, 2)],
            {(0, 0): 105, (0, 1): 205, (0, 2): 405},
            id="one's own follow each other",
        ),
        pytest.param(lambda: shared(4, 400), [(0, 0, 0)], {(0, 0): 105}, id="a part of the time"),
        # The first to be ready waits for the one whose turn it is.
        pytest.param(
            lambda: shared(2, 200, ((1, 0), (0, 0), (0, 1), (1, 1))),
            [(0, 0, 0), (10, 1, 0), (10, 0, 1), (500, 1, 1)],
            {(1, 0): 115, (0, 0): 215, (0, 1): 315, (1, 1): 605},
            id="turns in plan order whatever comes first",
        ),
        pytest.param(
            lambda: shared(2, 200, ((0, 0), (1, 0))),
            [(0, 1, 0), (0, 0, 0), (900, 0, 0), (900, 1, 0)],
            {(0, 0): 1005, (1, 0): 1105},
            id="turns begin again with the next iteration",
        ),
        pytest.param(
            lambda: shared(2, 200), [(0, 1, 0), (0, 0, 0)], {(1, 0): 105, (0, 0): 205}, id="as they come without turns"
        ),
        # Half of 2000 bytes takes a mate's channel 1000 ns; its first chunk is there after 3 + 1 ns, and the last one
        # is handed over in as much; 5 ns are the WAN's latency.
        pytest.param(
            lambda: shared(2, 2000, inside=Line(10 * RATE_BPS, 3, headers=False)),
            [(0, 0, 0)],
            {(0, 0): 1000 + 4 + 5 + 4},
            id="scatter and gather overlap with the WAN but for a chunk on either side",
        ),
        # Own halves have left by 100 and 110; those of the other wait for them, and are handed over in 50.
        pytest.param(
            lambda: shared(2, 200, inside=FAR_INSIDE),
            [(0, 0, 0), (10, 1, 0)],
            {(0, 0): 110 + 100 + 5 + 50, (1, 0): 100 + 100 + 5 + 50},
            id="own transfers go before those still arriving from a mate",
        ),
        pytest.param(
            lambda: shared(2, 200, ((0, 0), (1, 0)), inside=FAR_INSIDE),
            [(0, 0, 0), (10, 1, 0)],
            {(0, 0): 150 + 5 + 50, (1, 0): 200 + 5 + 50},
            id="a transfer waits for its turn while the one before arrives",
        ),
        # Half of 2000 bytes takes 10,000 ns to the mate; its last chunk of 10 bytes then has to go over the WAN,
        # 10 + 5 ns, and from the mate to the receiver, 3 + 100 ns.
        pytest.param(
            lambda: shared(2, 2000, inside=Line(RATE_BPS // 10, 3, headers=False)),
            [(0, 0, 0)],
            {(0, 0): 3 + 10_000 + 10 + 5 + 3 + 100},
            id="the way to a mate that is the slowest decides",
        ),
    ],
)
def test_transfers_arrive_in_turn_or_as_they_come(
    transfers: Callable[[], SharedTransfers | OwnTransfers],
    offers: list[Offer],
    there: dict[tuple[int, int], int],
) -> None:
    assert told_of(transfers(), offers) == there


@pytest.mark.parametrize("slower", [1, 2])
def test_where_the_network_inside_is_the_slower_one_it_sets_the_pace(slower: int) -> None:
    inside = Line(RATE_BPS // slower, 0, headers=False)
    # Half of the bytes has to leave the sender's port, and to come in at the receiver's.
    (there_ns,) = told_of(shared(2, 2000, inside=inside), [(0, 0, 0)]).values()
    assert 1000 * slower + 5 <= there_ns <= 1000 * slower + 5 + 4 * 10 * slower
