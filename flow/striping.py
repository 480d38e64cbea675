"""Stripe the chunks of a transfer over the connections of a group, and compute how long the slowest one takes.

The sum of a group's windows ignores that chunks are not split: of 16 chunks over 12 connections, four connections carry
two. While windows are still opening, a connection that has carried little has a small window. If it gets more than its
window lets out at once, the rest of the transfer waits for one or more round trips, while the other connections go on
with later transfers.

If a transfer has fewer chunks than there are connections, the connections take turns, the longest unused first. Each
may have been idle for so long that its window is halved, although the group was never idle.

Connections whose windows are all small send in step, and the line carries the bursts of all of them in every round. The
last connection of a round ends later by that time, and begins the next round later by that time.
"""

from dataclasses import dataclass

from wanbed.flow.congestion_window import halvings


@dataclass(frozen=True)
class Waiting:
    """The least time from a transfer's first byte to its last one.

    It is ``rounds`` round trips plus the line's time for ``burst_bytes``: the bytes of all connections in the last
    round, or those of the other connections in the round before, if these are more.
    """

    rounds: int
    burst_bytes: int


NO_WAITING = Waiting(0, 0)


@dataclass(frozen=True)
class Striping:
    """The distribution of a transfer, or of a node pair's share of one: ``chunks`` over ``connections``."""

    connections: int
    chunks: int
    chunk_bytes: int

    def __reduce__(self) -> tuple[type["Striping"], tuple[int, int, int]]:
        """Copy and pickle by what defines it, also where the class is compiled."""
        return Striping, (self.connections, self.chunks, self.chunk_bytes)


class Connections:
    """The congestion window of each connection of a group, opened by the chunks that it has carried.

    Windows grow by slow start. ``window_bytes`` is the receive window of each connection, None for no limit. After an
    idle time of more than ``timeout_ns`` a connection's window is halved for every whole timeout; None for never.
    """

    __slots__ = ("_all_last_ns", "_congestion", "_initial", "_last_ns", "_next", "_timeout_ns", "_unchanged", "_window")

    def __init__(
        self, connections: int, window_bytes: int | None, initial_bytes: int, timeout_ns: int | None = None
    ) -> None:
        self._window = window_bytes
        self._initial = initial_bytes
        self._timeout_ns = timeout_ns
        self._congestion = [initial_bytes] * connections
        # When each was used last; no list while all were used last at the same time.
        self._last_ns: list[int] = []
        self._all_last_ns = 0
        self._next = 0
        # The striping that has recently changed no window, and how many connections it has used without a change.
        self._unchanged: tuple[Striping | None, int] = None, 0

    def copied(self) -> "Connections":
        """Return a copy, which changes by itself."""
        copied = Connections(len(self._congestion), self._window, self._initial, self._timeout_ns)
        copied._congestion, copied._last_ns = self._congestion.copy(), self._last_ns.copy()
        copied._all_last_ns = self._all_last_ns
        copied._next, copied._unchanged = self._next, self._unchanged
        return copied

    def waiting(self, striping: Striping, now_ns: int) -> Waiting:
        """Return how long the transfer that begins now needs beyond its first burst. Call ``sent`` afterwards."""
        count = len(self._congestion)
        known_striping, unchanged = self._unchanged
        same = known_striping is striping or known_striping == striping
        if same and unchanged >= count and not self._idle(self._next, now_ns):
            return NO_WAITING
        each, more = divmod(striping.chunks, count)
        rounds: dict[tuple[int, int], _Rounds] = {}
        changed = False
        for turn in range(count if each else more):
            connection = (self._next + turn) % count
            before = self._congestion[connection]
            congestion = self._narrowed(connection, now_ns)
            load_bytes = (each + (turn < more)) * striping.chunk_bytes
            known = rounds.get((congestion, load_bytes))
            if known is None:
                known = rounds[congestion, load_bytes] = self._rounds(congestion, load_bytes)
            known.connections += 1
            changed = changed or known.before > 0 or known.congestion_bytes != before
            self._congestion[connection] = known.congestion_bytes
        alike = not changed and (same or known_striping is None)
        self._unchanged = (striping, unchanged + (more or count)) if alike else (None, 0)
        return _slowest(list(rounds.values()))

    def let_out(self, striping: Striping, now_ns: int) -> bool:
        """Return whether no congestion window delays the transfer, ignoring receive windows. Changes no state."""
        count = len(self._congestion)
        each, more = divmod(striping.chunks, count)
        for turn in range(count if each else more):
            connection = (self._next + turn) % count
            load_bytes = (each + (turn < more)) * striping.chunk_bytes
            if self._narrowed(connection, now_ns) < self._allowed(load_bytes):
                return False
        return True

    def sent(self, striping: Striping, end_ns: int) -> None:
        """Handle that the transfer passed to ``waiting`` last has left by ``end_ns``."""
        count = len(self._congestion)
        each, more = divmod(striping.chunks, count)
        if each:
            self._last_ns, self._all_last_ns = [], end_ns
        else:
            if not self._last_ns:
                self._last_ns = [self._all_last_ns] * count
            for turn in range(more):
                self._last_ns[(self._next + turn) % count] = end_ns
        self._next = (self._next + more) % count

    def _idle(self, connection: int, now_ns: int) -> bool:
        return self._timeout_ns is not None and now_ns - self._used_ns(connection) > self._timeout_ns

    def _used_ns(self, connection: int) -> int:
        return self._last_ns[connection] if self._last_ns else self._all_last_ns

    def _narrowed(self, connection: int, now_ns: int) -> int:
        congestion, idle_ns = self._congestion[connection], now_ns - self._used_ns(connection)
        if self._timeout_ns is None or idle_ns <= self._timeout_ns:
            return congestion
        for _ in range(halvings(idle_ns, self._timeout_ns)):
            if congestion <= self._initial:
                break
            congestion = max(congestion // 2, self._initial)
        return congestion

    def _rounds(self, congestion: int, load_bytes: int) -> "_Rounds":
        """Return in which rounds a connection with the window ``congestion`` sends ``load_bytes``."""
        rounds, sent, burst, opening = 0, 0, 0, congestion
        while sent + self._allowed(opening) < load_bytes:
            burst = self._allowed(opening)
            if self._window is not None and opening >= self._window:
                # All further rounds are equal.
                full_rounds = -(-(load_bytes - sent) // burst) - 1
                rounds, sent = rounds + full_rounds, sent + full_rounds * burst
                break
            sent += burst
            opening, rounds = 2 * opening, rounds + 1
        return _Rounds(rounds, burst, load_bytes - sent, self._grown(congestion, load_bytes))

    def _grown(self, congestion: int, left: int) -> int:
        """Return the congestion window after ``left`` bytes have been sent, in rounds of as much as it allows.

        The last bytes open the window too if congestion limited the round before, as in ``TcpWindow.sent``.
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
                # The window opens no further.
                break
            held_up = flown == before
            left -= flown
        return congestion

    def _allowed(self, congestion: int) -> int:
        return congestion if self._window is None else min(congestion, self._window)


class _Rounds:
    """The rounds of ``connections`` connections, each with so many ``before`` the last one.

    A connection sends ``burst_bytes`` in the one before the last and ``last_bytes`` in the last one, and has a window
    of ``congestion_bytes`` afterwards.
    """

    __slots__ = ("before", "burst_bytes", "congestion_bytes", "connections", "last_bytes")

    def __init__(self, before: int, burst_bytes: int, last_bytes: int, congestion_bytes: int) -> None:
        self.before = before
        self.burst_bytes = burst_bytes
        self.last_bytes = last_bytes
        self.congestion_bytes = congestion_bytes
        self.connections = 0


def _slowest(striped: list[_Rounds]) -> Waiting:
    """Return the wait of the connections with the most rounds, given what all others send in the last two rounds."""
    rounds = 0
    for each in striped:
        rounds = max(rounds, each.before)
    if not rounds:
        return NO_WAITING
    last = before = slowest_burst = slowest_last = 0
    for each in striped:
        if each.before == rounds:
            last += each.connections * each.last_bytes
            before += each.connections * each.burst_bytes
            slowest_burst, slowest_last = max((slowest_burst, slowest_last), (each.burst_bytes, each.last_bytes))
        elif each.before == rounds - 1:
            before += each.connections * each.last_bytes
    # The last connection begins a round when all others have sent theirs.
    return Waiting(rounds, max(before - slowest_burst + slowest_last, last))
