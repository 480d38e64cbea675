"""Simulate a ring all-reduce chunk by chunk, as ``wanbed.workloads.transport.ring_sum`` has it.

A replica passes each chunk on as part of the next step as soon as it has arrived. At most a window of chunks is at a
replica or on its way there: a further one waits until the replica has reported to the one before, a quarter of a window
at a time, which chunks it has used. A replica has the result once all its chunks have arrived and the kernel has
accepted all that it sends.
"""

from collections.abc import Sequence

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.simulator.rings.piece_round import PieceRound, PieceRounds
from wanbed.runner.simulator.rings.ring_all_reduce import RingCut
from wanbed.runner.simulator.rings.ring_hops import RingHops
from wanbed.workloads.transport.ring_round import cut_segments, ring_window_chunks

_Chunk = tuple[int, int]
"""A step, and the number of a chunk within the segment of that step."""


class ChunkedRing:
    """The replicas of one stage, in the ring's order. ``channels[i]`` leads from position i to the next one.

    ``backs[i]`` leads back over the same connections, as ``RingHops`` says.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        size_bytes: int,
        cut: RingCut,
        events: EventQueue,
        backs: Sequence[Channel | None],
    ) -> None:
        self.steps = cut.steps
        self.chunks_bytes = [
            [min(cut.chunk_bytes, end - at) for at in range(start, end, cut.chunk_bytes)]
            for start, end in cut_segments(size_bytes, 1, len(channels))
        ]
        window = ring_window_chunks([len(each) for each in self.chunks_bytes], cut.chunk_bytes)
        self.batch = max(1, window // 4)
        # Packets are followed connection by connection.
        connections = [1] * len(channels)
        self.hops: RingHops[_Chunk] = RingHops(
            channels, connections, events, backs, room=window, chunk_bytes=cut.chunk_bytes
        )
        self.join = PieceRounds(len(channels), lambda: _ChunkedRound(self)).join


class _ChunkedRound(PieceRound[_Chunk]):
    def __init__(self, ring: ChunkedRing) -> None:
        self._ring = ring
        self._count = count = len(ring.chunks_bytes)
        missing = [
            sum(len(ring.chunks_bytes[(position - step - 1) % count]) for step in range(ring.steps))
            for position in range(count)
        ]
        super().__init__(missing)
        self._unreported = [0] * count

    def _begin(self, position: int, now_ns: int) -> None:
        for number in range(len(self._ring.chunks_bytes[position])):
            self._send(position, 0, number, now_ns)

    def _send(self, position: int, step: int, number: int, now_ns: int) -> None:
        self._unaccepted[position] += 1
        size_bytes = self._ring.chunks_bytes[(position - step) % self._count][number]
        self._ring.hops.send(self, position, (step, number), size_bytes, now_ns)

    def _use(self, position: int, chunk: _Chunk, now_ns: int) -> None:
        step, number = chunk
        self._missing[position] -= 1
        self._unreported[position] += 1
        if step + 1 < self._ring.steps:
            self._send(position, step + 1, number, now_ns)
        if self._unreported[position] >= self._ring.batch or not self._missing[position]:
            self._ring.hops.give_room(position, self._unreported[position], now_ns)
            self._unreported[position] = 0
        self._end(position, now_ns)
