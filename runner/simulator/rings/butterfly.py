"""Simulate a butterfly all-reduce piece by piece, as ``wanbed.workloads.transport.butterfly_sum`` has it.

Each of k replicas owns a segment. It sends all others their segments' pieces at once, in order, and behind them the
sums of its own, each as soon as that piece has arrived from all others. On equal lines of rate R, each of its own and
without latency, A bytes take ``2 A / (k R)``. At most a window of pieces is on its way to a replica or waits there,
which uses none before it takes part: a further one waits until the replica has reported those that it has used.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.striping import Striping
from wanbed.runner.simulator.rings.piece_round import PieceRound, PieceRounds
from wanbed.workloads.transport.butterfly_sum import GATHER, SCATTER
from wanbed.workloads.transport.ring_round import cut_segments, ring_chunk_bytes, ring_window_chunks

Way = tuple[int, int]
"""The positions of a sender and a receiver."""

_PIECES = 32
"""The most pieces of a segment where packets are not followed: a few chunks that follow each other are one."""


class _Piece(NamedTuple):
    way: Way
    step: int
    number: int


class ButterflyCut(NamedTuple):
    """The cut of the data that a butterfly sums: the pieces of each segment, their largest size, and the window."""

    pieces_bytes: Sequence[Sequence[int]]
    piece_bytes: int
    window: int
    header_bytes: int = 0

    @staticmethod
    def of(size_bytes: int, replicas: int, connections: int, *, header_bytes: int | None = None) -> "ButterflyCut":
        """Cut as the transport does. With ``header_bytes`` every chunk is a piece, with that many bytes before it."""
        chunk_bytes = ring_chunk_bytes(size_bytes, 1, replicas, connections)
        segments = cut_segments(size_bytes, 1, replicas)
        chunks = [-(-(end - start) // chunk_bytes) for start, end in segments]
        joined = 1 if header_bytes is not None else max(1, -(-max(chunks) // _PIECES))
        piece_bytes = joined * chunk_bytes
        pieces = [[min(piece_bytes, end - at) for at in range(start, end, piece_bytes)] for start, end in segments]
        window = max(1, ring_window_chunks(chunks, chunk_bytes) // joined)
        return ButterflyCut(pieces, piece_bytes, window, header_bytes or 0)


class Butterfly:
    """The replicas of one stage. ``channels`` lead from each position to each other one.

    ``connections`` has the TCP connections of each of them.
    """

    def __init__(
        self, channels: Mapping[Way, Channel], connections: Mapping[Way, int], cut: ButterflyCut, events: EventQueue
    ) -> None:
        self.channels, self.cut, self.events = channels, cut, events
        self.positions = range(len(cut.pieces_bytes))
        self.batch = max(1, cut.window // 4)
        self._stripings = {
            way: Striping(count, 1, cut.piece_bytes) if count > 1 and not cut.header_bytes else None
            for way, count in connections.items()
        }
        self._credit = dict.fromkeys(channels, cut.window)
        self._unsent: dict[Way, deque[tuple[_Round, _Piece]]] = {way: deque() for way in channels}
        self.join = PieceRounds(len(self.positions), lambda: _Round(self)).join

    def send(self, each: "_Round", piece: _Piece, now_ns: int) -> None:
        """Send a piece once there is room for it."""
        self._unsent[piece.way].append((each, piece))
        self._send_next(piece.way, now_ns)

    def give_credit(self, way: Way, pieces: int, now_ns: int) -> None:
        """Report to a sender that ``pieces`` pieces have been used at the receiver."""
        self.events.at(self.channels[way].report_ns(now_ns), self._credited, (way, pieces))

    def _credited(self, now_ns: int, what: tuple[Way, int]) -> None:
        way, pieces = what
        self._credit[way] += pieces
        self._send_next(way, now_ns)

    def _send_next(self, way: Way, now_ns: int) -> None:
        unsent = self._unsent[way]
        while unsent and self._credit[way]:
            self._credit[way] -= 1
            each, piece = unsent.popleft()
            owner = way[1] if piece.step == SCATTER else way[0]
            size_bytes = self.cut.pieces_bytes[owner][piece.number] + self.cut.header_bytes
            left, accepted = partial(self._left, each, piece), partial(self._accepted, each, way[0])
            self.channels[way].queue(now_ns, size_bytes, left, self._stripings[way], accepted=accepted, at_once=False)

    def _left(self, each: "_Round", piece: _Piece, _: int, end_ns: int) -> None:
        arrival_ns = max(self.channels[piece.way].arrival_ns(end_ns), self.events.now_ns)
        self.events.at(arrival_ns, each.arrived, piece)

    def _accepted(self, each: "_Round", position: int, at_ns: int) -> None:
        self.events.at(max(at_ns, self.events.now_ns), each.accepted, position)


class _Round(PieceRound[_Piece]):
    def __init__(self, butterfly: Butterfly) -> None:
        self._butterfly = butterfly
        pieces, positions = butterfly.cut.pieces_bytes, butterfly.positions
        count, every = len(positions), sum(map(len, pieces))
        # The pieces of its own segment from all others, and the sums of all other segments.
        super().__init__([(count - 2) * len(pieces[position]) + every for position in positions])
        self._unsummed = [[count - 1] * len(own) for own in pieces]
        self._unreported = dict.fromkeys(butterfly.channels, 0)
        self._awaited = {
            (sender, receiver): len(pieces[receiver]) + len(pieces[sender]) for sender, receiver in butterfly.channels
        }

    def _begin(self, position: int, now_ns: int) -> None:
        for other in self._butterfly.positions:
            if other != position:
                for number in range(len(self._butterfly.cut.pieces_bytes[other])):
                    self._send(_Piece((position, other), SCATTER, number), now_ns)

    def arrived(self, now_ns: int, piece: _Piece) -> None:
        """Handle that a piece has arrived."""
        self.received(piece.way[1], piece, now_ns)

    def _send(self, piece: _Piece, now_ns: int) -> None:
        self._unaccepted[piece.way[0]] += 1
        self._butterfly.send(self, piece, now_ns)

    def _use(self, position: int, piece: _Piece, now_ns: int) -> None:
        way, step, number = piece
        self._missing[position] -= 1
        if step == SCATTER:
            self._unsummed[position][number] -= 1
            if not self._unsummed[position][number]:
                for other in self._butterfly.positions:
                    if other != position:
                        self._send(_Piece((position, other), GATHER, number), now_ns)
        self._unreported[way] += 1
        self._awaited[way] -= 1
        if self._unreported[way] >= self._butterfly.batch or not self._awaited[way]:
            self._butterfly.give_credit(way, self._unreported[way], now_ns)
            self._unreported[way] = 0
        self._end(position, now_ns)
