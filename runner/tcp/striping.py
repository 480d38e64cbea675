"""Deal the chunks of a transfer to the connections of a group, and work out how long the unluckiest of them takes.

A group's windows taken together forget that chunks are not cut: of 16 chunks over 12 connections four carry two. As
long as windows are still opening, one that has carried little is narrow, and may be dealt more than it lets out at
once: the rest of the transfer waits for a round trip, or several, while the other connections go on with what follows.
Where a transfer has fewer chunks than there are connections, they take turns, the longest unused first: each may have
been idle for so long that its window is halved, although the group never was.
Connections that are all narrow send in step, and the line has the bursts of all of them to carry in every round: the
last one of a round ends by so much later, and begins the next round by so much later.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from runner.tcp.congestion_window import halvings


@dataclass(frozen=True)
class Waiting:
    """How much later than its first byte the last one of a transfer leaves at least.

    Round trips, and then the time that the line takes for ``burst_bytes``: what all connections send in the last round,
    or what the others send in the one before, if that is more.
    """

    rounds: int
    burst_bytes: int


NO_WAITING = Waiting(0, 0)


@dataclass(frozen=True)
class Striping:
    """A transfer, or a node pair's share of one: so many chunks over so many connections."""

    connections: int
    chunks: int
    chunk_bytes: int


class Connections:
    """The congestion window of each connection of a group, as far as what it was dealt has opened it.

    They grow as slow start does. ``window_bytes`` is what the receiver allows each connection, None for anything; after
    idle of more than ``timeout_ns`` a connection's window is halved for every whole one, None for never.
    """

    __slots__ = ("_congestion", "_initial", "_last_ns", "_next", "_timeout_ns", "_unchanged", "_window")

    def __init__(
        self, connections: int, window_bytes: int | None, initial_bytes: int, timeout_ns: int | None = None
    ) -> None:
        self._window = window_bytes
        self._initial = initial_bytes
        self._timeout_ns = timeout_ns
        self._congestion = [initial_bytes] * connections
        self._last_ns = [0] * connections
        self._next = 0
        # The transfer that has been dealt alike of late without changing any window, and how many have had their turn.
        self._unchanged: tuple[Striping | None, int] = None, 0

    def waiting(self, striping: Striping, now_ns: int) -> Waiting:
        """Return how long the transfer that begins now needs beyond its first burst; ``sent`` is to follow."""
        count = len(self._congestion)
        if self._unchanged[0] == striping and self._unchanged[1] >= count and not self._idle(self._next, now_ns):
            return NO_WAITING
        each, more = divmod(striping.chunks, count)
        rounds: dict[tuple[int, int], _Rounds] = {}
        striped: Counter[_Rounds] = Counter()
        changed = False
        for turn in range(count if each else more):
            connection = (self._next + turn) % count
            before = self._congestion[connection]
            congestion = self._narrowed(connection, now_ns)
            load_bytes = (each + (turn < more)) * striping.chunk_bytes
            known = rounds.get((congestion, load_bytes))
            if known is None:
                known = rounds[congestion, load_bytes] = self._rounds(congestion, load_bytes)
            striped[known] += 1
            changed = changed or known.before > 0 or known.congestion_bytes != before
            self._congestion[connection] = known.congestion_bytes
        alike = not changed and self._unchanged[0] in (striping, None)
        self._unchanged = (striping, self._unchanged[1] + (more or count)) if alike else (None, 0)
        return _slowest(striped)

    def let_out(self, striping: Striping, now_ns: int) -> bool:
        """Return whether congestion holds nothing of the transfer up, whatever the receiver allows; has no effect."""
        count = len(self._congestion)
        each, more = divmod(striping.chunks, count)
        for turn in range(count if each else more):
            connection = (self._next + turn) % count
            load_bytes = (each + (turn < more)) * striping.chunk_bytes
            if self._narrowed(connection, now_ns) < self._allowed(load_bytes):
                return False
        return True

    def sent(self, striping: Striping, end_ns: int) -> None:
        """Handle that what was asked about last has left by ``end_ns``."""
        count = len(self._last_ns)
        each, more = divmod(striping.chunks, count)
        if each:
            self._last_ns = [end_ns] * count
        else:
            for turn in range(more):
                self._last_ns[(self._next + turn) % count] = end_ns
        self._next = (self._next + more) % count

    def _idle(self, connection: int, now_ns: int) -> bool:
        return self._timeout_ns is not None and now_ns - self._last_ns[connection] > self._timeout_ns

    def _narrowed(self, connection: int, now_ns: int) -> int:
        return self._halved(connection, now_ns) if self._idle(connection, now_ns) else self._congestion[connection]

    def _halved(self, connection: int, now_ns: int) -> int:
        assert self._timeout_ns is not None
        congestion = self._congestion[connection]
        for _ in range(halvings(now_ns - self._last_ns[connection], self._timeout_ns)):
            if congestion <= self._initial:
                break
            congestion = max(congestion // 2, self._initial)
        return congestion

    def _rounds(self, congestion: int, load_bytes: int) -> "_Rounds":
        """Return how a connection that allows so much sends so much."""
        rounds, sent, burst, opening = 0, 0, 0, congestion
        while sent + self._allowed(opening) < load_bytes:
            burst = self._allowed(opening)
            if self._window is not None and opening >= self._window:
                # From here on every round is alike.
                full_rounds = -(-(load_bytes - sent) // burst) - 1
                rounds, sent = rounds + full_rounds, sent + full_rounds * burst
                break
            sent += burst
            opening, rounds = 2 * opening, rounds + 1
        return _Rounds(rounds, burst, load_bytes - sent, self._grown(congestion, load_bytes))

    def _grown(self, congestion: int, left: int) -> int:
        """Return the window after so much has gone, in rounds of as much as it allows.

        The rest that goes after a round that congestion held up opens it too, as in ``TcpWindow.sent``.
        """
        held_up = False
        while left > 0:
            before, flown = congestion, min(self._allowed(congestion), left)
            held_up = held_up or flown == before
            if held_up and (self._window is None or before <= self._window):
                congestion += flown
            elif congestion < 2 * flown:
                congestion = min(congestion + flown, 2 * flown)
            elif flown < left:
                # As open as it gets.
                break
            held_up = flown == before
            left -= flown
        return congestion

    def _allowed(self, congestion: int) -> int:
        return congestion if self._window is None else min(congestion, self._window)


class _Rounds(NamedTuple):
    """One connection's rounds: those before the last, what it sends in the one before and the last, its window then."""

    before: int
    burst_bytes: int
    last_bytes: int
    congestion_bytes: int


def _slowest(striped: "Counter[_Rounds]") -> Waiting:
    """Return how long those wait that need the most rounds, with all that send beside them in their last two."""
    rounds = max((each.before for each in striped), default=0)
    if not rounds:
        return NO_WAITING
    slowest = max(each for each in striped if each.before == rounds)
    last = sum(number * each.last_bytes for each, number in striped.items() if each.before == rounds)
    before = sum(
        number * (each.burst_bytes if each.before == rounds else each.last_bytes)
        for each, number in striped.items()
        if each.before >= rounds - 1
    )
    # The last of them begins a round when all the others have sent theirs.
    return Waiting(rounds, max(before - slowest.burst_bytes + slowest.last_bytes, last))
