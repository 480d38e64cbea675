"""How the chunks of a transfer are dealt to the connections of a group, and how long the unluckiest of them takes.

A group's windows taken together forget that chunks are not cut: of 16 chunks over 12 connections four carry two. As
long as windows are still opening, one that has carried little is narrow, and may be dealt more than it lets out at
once: the rest of the transfer waits for a round trip, or several, while the other connections go on with what follows.
Connections that are all narrow send in step, and the line has the bursts of all of them to carry in every round: the
last one of a round ends by so much later, and begins the next round by so much later.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """How much later than its first byte the last one of a transfer leaves at least.

    Round trips, and then the time that the line takes for ``burst_bytes``: what all connections send in the last round,
    or in the one before if that was more.
    """

    rounds: int
    burst_bytes: int


NO_WAITING = Waiting(0, 0)


@dataclass(frozen=True)
class Dealing:
    """A transfer, or a node pair's share of one: so many chunks over so many connections."""

    connections: int
    chunks: int
    chunk_bytes: int

    @property
    def total_bytes(self) -> int:
        """What all of them carry, at most."""
        return self.chunks * self.chunk_bytes

    @property
    def most_bytes(self) -> int:
        """What the connection with the most chunks carries."""
        return -(-self.chunks // self.connections) * self.chunk_bytes


class NarrowestConnection:
    """The congestion window of that connection of a group which has carried the least so far.

    It grows as slow start does. ``window_bytes`` is what the receiver allows each connection, None for anything.
    """

    __slots__ = ("_congestion", "_in_turn", "_initial", "_window")

    def __init__(self, window_bytes: int | None, initial_bytes: int) -> None:
        self._window = window_bytes
        self._initial = self._congestion = initial_bytes
        self._in_turn = 0

    def halve(self) -> None:
        """A timeout of idle has passed."""
        self._congestion = max(self._congestion // 2, self._initial)

    def waiting(self, dealing: Dealing) -> Waiting:
        """How long it needs beyond the first burst, should it be dealt the most, and the others be as narrow.

        Its window grows by what the connection carries that is dealt the least.
        """
        if self._window is not None and self._congestion >= self._window:
            return NO_WAITING
        rounds, sent, burst, congestion = 0, 0, 0, self._congestion
        while sent + self._allowed(congestion) < dealing.most_bytes:
            burst = self._allowed(congestion)
            if self._window is not None and congestion >= self._window:
                # From here on every round is alike.
                full_rounds = -(-(dealing.most_bytes - sent) // burst) - 1
                rounds, sent = rounds + full_rounds, sent + full_rounds * burst
                break
            sent += burst
            congestion, rounds = 2 * congestion, rounds + 1
        self._grow(self._turns(dealing) * dealing.chunk_bytes)
        if not rounds:
            return NO_WAITING
        in_step = min(dealing.connections, dealing.chunks)
        return Waiting(rounds, max(in_step * burst, dealing.total_bytes - in_step * sent))

    def _turns(self, dealing: Dealing) -> int:
        """How many chunks it is dealt at least; where a transfer has too few for all, they take turns."""
        if dealing.chunks >= dealing.connections:
            return dealing.chunks // dealing.connections
        turns, self._in_turn = divmod(self._in_turn + dealing.chunks, dealing.connections)
        return turns

    def _grow(self, left: int) -> None:
        """Open the window by what goes in rounds of as much as it allows."""
        while left > 0:
            flown = min(self._allowed(self._congestion), left)
            if self._congestion < 2 * flown:
                self._congestion = min(self._congestion + flown, 2 * flown)
            elif flown < left:
                # As open as it gets.
                return
            left -= flown

    def _allowed(self, congestion: int) -> int:
        return congestion if self._window is None else min(congestion, self._window)
