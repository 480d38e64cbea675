"""Simulate a ring all-reduce chunk by chunk, as ``wanbed.workloads.transport.ring_sum`` has it.

A replica passes each chunk on as part of the next step as soon as it has arrived. At most a window of chunks is at a
replica or on its way there: a further one waits until the replica has reported to the one before, a quarter of a window
at a time, which chunks it has used. A replica has the result once all its chunks have arrived and the kernel has
accepted all that it sends.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.simulator.rings.piece_round import PieceRound, PieceRounds
from wanbed.runner.simulator.rings.ring_all_reduce import RingCut
from wanbed.workloads.transport.frame import HEADER_BYTES
from wanbed.workloads.transport.ring_round import cut_segments, ring_window_chunks

_Chunk = tuple[int, int, int]
"""A position, a step, and the number of a chunk within the segment of that step."""


class _Report:
    """What a replica reports at one time: how many chunks it has used."""

    __slots__ = ("at_ns", "chunks")

    def __init__(self, at_ns: int, chunks: int) -> None:
        self.at_ns, self.chunks = at_ns, chunks


class ChunkedRing:
    """The replicas of one stage, in the ring's order. ``channels[i]`` leads from position i to the next one.

    ``backs[i]`` leads back over the same connections, and carries the reports; None if packets that way are not
    followed.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        size_bytes: int,
        cut: RingCut,
        events: EventQueue,
        backs: Sequence[Channel | None],
    ) -> None:
        self.channels, self.events, self.steps = channels, events, cut.steps
        self._backs = backs
        self.chunks_bytes = [
            [min(cut.chunk_bytes, end - at) for at in range(start, end, cut.chunk_bytes)]
            for start, end in cut_segments(size_bytes, 1, len(channels))
        ]
        window = ring_window_chunks([len(each) for each in self.chunks_bytes], cut.chunk_bytes)
        self.batch = max(1, window // 4)
        self._credit = [window] * len(channels)
        self._reports = [_Report(-1, 0) for _ in channels]
        self._unsent: list[deque[tuple[_ChunkedRound, _Chunk]]] = [deque() for _ in channels]
        self.join = PieceRounds(len(channels), lambda: _ChunkedRound(self)).join

    def send(self, ring_round: "_ChunkedRound", chunk: _Chunk, now_ns: int) -> None:
        """Send a chunk to the next position once there is room for it."""
        self._unsent[chunk[0]].append((ring_round, chunk))
        self._send_next(chunk[0], now_ns)

    def give_credit(self, position: int, chunks: int, now_ns: int) -> None:
        """Report to the position before that ``chunks`` chunks have been used at this one."""
        before = (position - 1) % len(self.channels)
        back = self._backs[before]
        if back is None:
            self.events.at(self.channels[before].report_ns(now_ns), self._credited, (before, chunks))
            return
        report = self._reports[position]
        if report.at_ns == now_ns:
            report.chunks += chunks
            return
        report = self._reports[position] = _Report(now_ns, chunks)

        def known(at_ns: int) -> None:
            self.events.at(max(at_ns, self.events.now_ns), self._reported, (before, report))

        # It goes before the chunks that wait, where two replicas send each other chunks.
        back.request(now_ns, HEADER_BYTES, known)

    def _reported(self, now_ns: int, what: tuple[int, _Report]) -> None:
        before, report = what
        # Where the way takes no time, more may be used at this instant, which is another report.
        report.at_ns = -1
        self._credited(now_ns, (before, report.chunks))

    def _credited(self, now_ns: int, what: tuple[int, int]) -> None:
        position, chunks = what
        self._credit[position] += chunks
        self._send_next(position, now_ns)

    def _send_next(self, position: int, now_ns: int) -> None:
        unsent, channel = self._unsent[position], self.channels[position]
        count = len(self.channels)
        while unsent and self._credit[position]:
            self._credit[position] -= 1
            ring_round, (_, step, number) = unsent.popleft()

            size_bytes = self.chunks_bytes[(position - step) % count][number] + HEADER_BYTES
            arrived = partial(self._left, ring_round, (position, step, number))
            accepted = partial(self._accepted, ring_round, position)
            channel.queue(now_ns, size_bytes, arrived, accepted=accepted, at_once=False)

    def _left(self, ring_round: "_ChunkedRound", chunk: _Chunk, _: int, end_ns: int) -> None:
        position, step, number = chunk
        arrival_ns = max(self.channels[position].arrival_ns(end_ns), self.events.now_ns)
        self.events.at(arrival_ns, ring_round.arrived, ((position + 1) % len(self.channels), step, number))

    def _accepted(self, ring_round: "_ChunkedRound", position: int, at_ns: int) -> None:
        self.events.at(max(at_ns, self.events.now_ns), ring_round.accepted, position)


class _ChunkedRound(PieceRound[_Chunk]):
    def __init__(self, ring: ChunkedRing) -> None:
        self._ring = ring
        self._count = count = len(ring.channels)
        missing = [
            sum(len(ring.chunks_bytes[(position - step - 1) % count]) for step in range(ring.steps))
            for position in range(count)
        ]
        super().__init__(missing)
        self._unreported = [0] * count

    def _begin(self, position: int, now_ns: int) -> None:
        for number in range(len(self._ring.chunks_bytes[position])):
            self._send((position, 0, number), now_ns)

    def arrived(self, now_ns: int, chunk: _Chunk) -> None:
        """Handle that a position has received a chunk that the one before sent in a step."""
        self.received(chunk[0], chunk, now_ns)

    def _send(self, chunk: _Chunk, now_ns: int) -> None:
        self._unaccepted[chunk[0]] += 1
        self._ring.send(self, chunk, now_ns)

    def _use(self, position: int, chunk: _Chunk, now_ns: int) -> None:
        _, step, number = chunk
        self._missing[position] -= 1
        self._unreported[position] += 1
        if step + 1 < self._ring.steps:
            self._send((position, step + 1, number), now_ns)
        if self._unreported[position] >= self._ring.batch or not self._missing[position]:
            self._ring.give_credit(position, self._unreported[position], now_ns)
            self._unreported[position] = 0
        self._end(position, now_ns)
