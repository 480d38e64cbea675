"""Simulate reduce and broadcast along a chain piece by piece, as ``wanbed.workloads.transport.chain_sum`` has them.

The second position sends its data piece by piece; each further one adds its own and passes the sum on, around to the
first. Once that has all, it sends the sum, which goes on to the last position.
"""

from collections.abc import Sequence
from typing import NamedTuple

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.simulator.rings.piece_round import PieceRound, PieceRounds
from wanbed.runner.simulator.rings.piece_ways import PieceWays, SentPiece
from wanbed.workloads.transport.ring_round import ring_chunk_bytes, ring_window_chunks

_PIECES = 256
"""The most pieces where packets are not followed: those of up to 256 MiB are as large as the transport's chunks."""

_REDUCE, _BROADCAST = range(2)


class ChainCut(NamedTuple):
    """The cut of the data: the size of each piece, of the largest one, and the window."""

    pieces_bytes: Sequence[int]
    piece_bytes: int
    window: int
    header_bytes: int = 0

    @staticmethod
    def of(
        size_bytes: int, connections: int, *, piece_bytes: int | None = None, header_bytes: int | None = None
    ) -> "ChainCut":
        """Cut as the transport does. With ``header_bytes`` every chunk is a piece, with that many bytes before it."""
        chunk_bytes = ring_chunk_bytes(size_bytes, 1, 1, connections, piece_bytes)
        chunks = -(-size_bytes // chunk_bytes)
        joined = 1 if header_bytes is not None else max(1, -(-chunks // _PIECES))
        piece_bytes = joined * chunk_bytes
        pieces = [min(piece_bytes, size_bytes - at) for at in range(0, size_bytes, piece_bytes)]
        return ChainCut(
            pieces, piece_bytes, max(1, ring_window_chunks([chunks, 0], chunk_bytes) // joined), header_bytes or 0
        )


class Chain:
    """The replicas of one stage. ``channels`` lead from each position to the next, and from the last to the first.

    ``connections`` has the TCP connections of each of them.
    """

    def __init__(
        self, channels: Sequence[Channel], connections: Sequence[int], cut: ChainCut, events: EventQueue
    ) -> None:
        count = len(channels)
        hops = [(position, (position + 1) % count) for position in range(count)]
        ways = PieceWays(
            dict(zip(hops, channels, strict=True)),
            dict(zip(hops, connections, strict=True)),
            events,
            piece_bytes=cut.piece_bytes,
            window=cut.window,
            followed=cut.header_bytes > 0,
        )
        self.join = PieceRounds(count, lambda: _Round(ways, cut, count)).join


class _Round(PieceRound[SentPiece]):
    def __init__(self, ways: PieceWays, cut: ChainCut, count: int) -> None:
        self._ways, self._cut, self._count = ways, cut, count
        pieces = len(cut.pieces_bytes)
        # The second position has nothing to reduce, the first one no broadcast to receive.
        super().__init__([pieces * ((position != 1) + (position != 0)) for position in range(count)])

    def _begin(self, position: int, now_ns: int) -> None:
        if position == 1:
            self._send_all(position, _REDUCE, now_ns)

    def _send_all(self, position: int, step: int, now_ns: int) -> None:
        for number in range(len(self._cut.pieces_bytes)):
            self._send(position, step, number, now_ns)

    def _send(self, position: int, step: int, number: int, now_ns: int) -> None:
        self._unaccepted[position] += 1
        way = position, (position + 1) % self._count
        size_bytes = self._cut.pieces_bytes[number] + self._cut.header_bytes
        self._ways.send(self, SentPiece(way, step, number), size_bytes, now_ns)

    def _use(self, position: int, piece: SentPiece, now_ns: int) -> None:
        self._missing[position] -= 1
        if position == 0:
            if not self._missing[position]:
                self._send_all(position, _BROADCAST, now_ns)
        elif piece.step == _REDUCE or position < self._count - 1:
            self._send(position, piece.step, piece.number, now_ns)
        self._ways.used(piece.way, now_ns, last=not self._missing[position])
        self._end(position, now_ns)
