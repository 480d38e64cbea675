"""Send the pieces of an all-reduce over the ways between its positions, as far as each receiver has room for them.

At most a window of pieces is on its way to a replica or waits there, which uses none before it takes part: a further
one waits until the replica has reported those that it has used.
"""

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.striping import Striping
from wanbed.runner.simulator.rings.piece_round import PieceRound

Way = tuple[int, int]
"""The positions of a sender and a receiver."""


class SentPiece(NamedTuple):
    """A piece of a step, by its number, on its way."""

    way: Way
    step: int
    number: int


class PieceWays:
    """The ways between positions: a channel for each, and the TCP connections that it stands for.

    A piece has ``piece_bytes`` at most. With ``followed`` packets connections are the channel's own.
    """

    def __init__(
        self,
        channels: Mapping[Way, Channel],
        connections: Mapping[Way, int],
        events: EventQueue,
        *,
        piece_bytes: int,
        window: int,
        followed: bool,
    ) -> None:
        self._channels, self._events = channels, events
        self._batch = max(1, window // 4)
        self._stripings = {
            way: Striping(count, 1, piece_bytes) if count > 1 and not followed else None
            for way, count in connections.items()
        }
        self._credit = dict.fromkeys(channels, window)
        self._unsent: dict[Way, deque[tuple[PieceRound[SentPiece], SentPiece, int]]] = {
            way: deque() for way in channels
        }
        self._unreported = dict.fromkeys(channels, 0)

    def send(self, each: PieceRound[SentPiece], piece: SentPiece, size_bytes: int, now_ns: int) -> None:
        """Send a piece of a round once there is room for it."""
        self._unsent[piece.way].append((each, piece, size_bytes))
        self._send_next(piece.way, now_ns)

    def used(self, way: Way, now_ns: int, *, last: bool) -> None:
        """Handle that a receiver has used a piece, which is the ``last`` of its round: it reports some together."""
        self._unreported[way] += 1
        if self._unreported[way] >= self._batch or last:
            pieces, self._unreported[way] = self._unreported[way], 0
            self._events.at(self._channels[way].report_ns(now_ns), self._credited, (way, pieces))

    def _credited(self, now_ns: int, what: tuple[Way, int]) -> None:
        way, pieces = what
        self._credit[way] += pieces
        self._send_next(way, now_ns)

    def _send_next(self, way: Way, now_ns: int) -> None:
        unsent = self._unsent[way]
        while unsent and self._credit[way]:
            self._credit[way] -= 1
            each, piece, size_bytes = unsent.popleft()
            left, accepted = partial(self._left, each, piece), partial(self._accepted, each, way[0])
            self._channels[way].queue(now_ns, size_bytes, left, self._stripings[way], accepted=accepted, at_once=False)

    def _left(self, each: PieceRound[SentPiece], piece: SentPiece, _: int, end_ns: int) -> None:
        arrival_ns = max(self._channels[piece.way].arrival_ns(end_ns), self._events.now_ns)
        self._events.at(arrival_ns, partial(self._arrived, each), piece)

    def _arrived(self, each: PieceRound[SentPiece], now_ns: int, piece: SentPiece) -> None:
        each.received(piece.way[1], piece, now_ns)

    def _accepted(self, each: PieceRound[SentPiece], position: int, at_ns: int) -> None:
        self._events.at(max(at_ns, self._events.now_ns), each.accepted, position)
