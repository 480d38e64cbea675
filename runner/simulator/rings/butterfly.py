"""Simulate a butterfly all-reduce piece by piece, as ``wanbed.workloads.transport.butterfly_sum`` has it.

Each of k replicas owns a segment. It sends all others their segments' pieces at once, in order, and behind them the
sums of its own, each as soon as that piece has arrived from all others. On equal lines of rate R, each of its own and
without latency, A bytes take ``2 A / (k R)``.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.simulator.rings.piece_round import PieceRound, PieceRounds
from wanbed.runner.simulator.rings.piece_ways import PieceWays, SentPiece, Way
from wanbed.workloads.transport.butterfly_sum import GATHER, SCATTER
from wanbed.workloads.transport.ring_round import cut_segments, ring_chunk_bytes, ring_window_chunks

_PIECES = 32
"""The most pieces of a segment where packets are not followed: a few chunks that follow each other are one."""


class ButterflyCut(NamedTuple):
    """The cut of the data that a butterfly sums: the pieces of each segment, their largest size, and the window."""

    pieces_bytes: Sequence[Sequence[int]]
    piece_bytes: int
    window: int
    header_bytes: int = 0

    @staticmethod
    def of(
        size_bytes: int,
        replicas: int,
        connections: int,
        *,
        piece_bytes: int | None = None,
        header_bytes: int | None = None,
    ) -> "ButterflyCut":
        """Cut as the transport does. With ``header_bytes`` every chunk is a piece, with that many bytes before it."""
        chunk_bytes = ring_chunk_bytes(size_bytes, 1, replicas, connections, piece_bytes)
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
        ways = PieceWays(
            channels,
            connections,
            events,
            piece_bytes=cut.piece_bytes,
            window=cut.window,
            followed=cut.header_bytes > 0,
        )
        self.join = PieceRounds(len(cut.pieces_bytes), lambda: _Round(ways, cut)).join


class _Round(PieceRound[SentPiece]):
    def __init__(self, ways: PieceWays, cut: ButterflyCut) -> None:
        self._ways, self._cut, pieces = ways, cut, cut.pieces_bytes
        self._positions = range(len(pieces))
        count, every = len(pieces), sum(map(len, pieces))
        # The pieces of its own segment from all others, and the sums of all other segments.
        super().__init__([(count - 2) * len(pieces[position]) + every for position in self._positions])
        self._unsummed = [[count - 1] * len(own) for own in pieces]
        self._awaited = {
            (sender, receiver): len(pieces[receiver]) + len(pieces[sender])
            for sender in self._positions
            for receiver in self._positions
            if sender != receiver
        }

    def _begin(self, position: int, now_ns: int) -> None:
        for other in self._positions:
            if other != position:
                for number in range(len(self._cut.pieces_bytes[other])):
                    self._send(SentPiece((position, other), SCATTER, number), other, now_ns)

    def _send(self, piece: SentPiece, owner: int, now_ns: int) -> None:
        self._unaccepted[piece.way[0]] += 1
        size_bytes = self._cut.pieces_bytes[owner][piece.number] + self._cut.header_bytes
        self._ways.send(self, piece, size_bytes, now_ns)

    def _use(self, position: int, piece: SentPiece, now_ns: int) -> None:
        way, step, number = piece
        self._missing[position] -= 1
        if step == SCATTER:
            self._unsummed[position][number] -= 1
            if not self._unsummed[position][number]:
                for other in self._positions:
                    if other != position:
                        self._send(SentPiece((position, other), GATHER, number), position, now_ns)
        self._awaited[way] -= 1
        self._ways.used(way, now_ns, last=not self._awaited[way])
        self._end(position, now_ns)
