"""Send the chunks of an all-reduce from each position of a ring to the next, as far as that has said it has room."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.striping import Striping
from wanbed.runner.simulator.channels.packet_channel import PacketChannel
from wanbed.runner.simulator.rings.piece_round import PieceRound
from wanbed.workloads.transport.frame import HEADER_BYTES

Piece = TypeVar("Piece")


class _Report:
    """What a position reports at one time: for how many chunks it has room."""

    __slots__ = ("at_ns", "chunks")

    def __init__(self, at_ns: int, chunks: int) -> None:
        self.at_ns, self.chunks = at_ns, chunks


class RingHops(Generic[Piece]):
    """The hops of a ring. ``channels[i]`` leads from position i to the next one, over ``connections[i]``.

    ``backs[i]`` leads back over the same connections, and carries the reports; None if packets that way are not
    followed. Each position has room for ``room`` chunks at first, of ``chunk_bytes`` at most.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        connections: Sequence[int],
        events: EventQueue,
        backs: Sequence[Channel | None],
        *,
        room: int,
        chunk_bytes: int,
    ) -> None:
        self._channels, self._backs, self._events = channels, backs, events
        followed = any(isinstance(channel, PacketChannel) for channel in channels)
        self._header_bytes = HEADER_BYTES if followed else 0
        self._stripings = [
            Striping(count, 1, chunk_bytes) if count > 1 and not followed else None for count in connections
        ]
        self._room = [room] * len(channels)
        self._reports = [_Report(-1, 0) for _ in channels]
        self._unsent: list[deque[tuple[PieceRound[Piece], Piece, int]]] = [deque() for _ in channels]

    def send(self, each: PieceRound[Piece], position: int, piece: Piece, size_bytes: int, now_ns: int) -> None:
        """Send a piece of a round to the next position once there is room for it."""
        self._unsent[position].append((each, piece, size_bytes))
        self._send_next(position, now_ns)

    def give_room(self, position: int, chunks: int, now_ns: int) -> None:
        """Report to the position before that this one has room for ``chunks`` chunks more."""
        before = (position - 1) % len(self._channels)
        back = self._backs[before]
        if back is None:
            self._events.at(self._channels[before].report_ns(now_ns), self._given, (before, chunks))
            return
        report = self._reports[position]
        if report.at_ns == now_ns:
            report.chunks += chunks
            return
        report = self._reports[position] = _Report(now_ns, chunks)

        def known(at_ns: int) -> None:
            self._events.at(max(at_ns, self._events.now_ns), self._reported, (before, report))

        # It goes before the chunks that wait, where two replicas send each other chunks.
        back.request(now_ns, HEADER_BYTES, known)

    def _reported(self, now_ns: int, what: tuple[int, _Report]) -> None:
        before, report = what
        # Where the way takes no time, more may be used at this instant, which is another report.
        report.at_ns = -1
        self._given(now_ns, (before, report.chunks))

    def _given(self, now_ns: int, what: tuple[int, int]) -> None:
        position, chunks = what
        self._room[position] += chunks
        self._send_next(position, now_ns)

    def _send_next(self, position: int, now_ns: int) -> None:
        unsent, channel, striping = self._unsent[position], self._channels[position], self._stripings[position]
        while unsent and self._room[position]:
            self._room[position] -= 1
            each, piece, size_bytes = unsent.popleft()
            left, accepted = partial(self._left, each, position, piece), partial(self._accepted, each, position)
            size_bytes += self._header_bytes
            channel.queue(now_ns, size_bytes, left, striping, accepted=accepted, at_once=False)

    def _left(self, each: PieceRound[Piece], position: int, piece: Piece, _: int, end_ns: int) -> None:
        arrival_ns = max(self._channels[position].arrival_ns(end_ns), self._events.now_ns)
        self._events.at(arrival_ns, partial(self._arrived, each, (position + 1) % len(self._channels)), piece)

    def _arrived(self, each: PieceRound[Piece], position: int, now_ns: int, piece: Piece) -> None:
        each.received(position, piece, now_ns)

    def _accepted(self, each: PieceRound[Piece], position: int, at_ns: int) -> None:
        self._events.at(max(at_ns, self._events.now_ns), each.accepted, position)
