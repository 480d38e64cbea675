"""Work out the ring all-reduce of the replicas of one stage: when each of them has the sum.

As ``workloads.transport.ring.ring`` does it: with P replicas the gradients are cut in P segments, and in each of 2(P-1)
steps every replica sends one to the next. Segments go through in chunks, so that a step of a replica begins as soon as
the first chunk of the same segment has come from the previous replica, and the one before it whole, and ends no earlier
than that segment has come. On equal lines of rate R without latency that takes ``2 (P-1)/P x A / R``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.tcp.channel import PrivateChannel
from runner.tcp.striping import Striping
from workloads.transport.ring.ring_round import ring_chunk_bytes, ring_window_chunks


@dataclass(frozen=True)
class RingCut:
    """The cut of the data of ``replicas`` that goes round: segments that differ by a byte are taken for equal.

    A segment is sent as its first chunk, with which the next replica can begin its next step, and the rest.
    """

    replicas: int
    segment_bytes: int
    chunk_bytes: int

    @staticmethod
    def of(size_bytes: int, replicas: int, connections: int = 1) -> "RingCut":
        """Cut as ``workloads.transport.ring.ring_round`` does, for so many connections of two neighbours at most."""
        return RingCut(replicas, -(-size_bytes // replicas), ring_chunk_bytes(size_bytes, 1, replicas, connections))

    @property
    def steps(self) -> int:
        """The number of segments that each replica sends."""
        return 2 * (self.replicas - 1)

    @property
    def parts_bytes(self) -> tuple[int, int]:
        """The first chunk, and the rest of a segment."""
        first_bytes = min(self.chunk_bytes, self.segment_bytes)
        return first_bytes, self.segment_bytes - first_bytes

    @property
    def chunks(self) -> int:
        """The number of chunks of a segment."""
        return -(-self.segment_bytes // self.chunk_bytes)

    @property
    def window_holds_all(self) -> bool:
        """Whether as many chunks may be on their way to a replica, or wait there, as the data has."""
        return ring_window_chunks([self.chunks] * self.replicas, self.chunk_bytes) == self.replicas * self.chunks

    def awaited(self, step: int) -> tuple[int, bool] | None:
        """Return what the next replica must have told to have used before that step begins; None for nothing.

        That is the first chunk of a step, or all of it, where the window holds all chunks. Used ones are told in
        quarters of the window.
        """
        chunks, window = self.chunks, self.replicas * self.chunks
        batch = max(1, window // 4)
        used = step * chunks + min(chunks, 2) - window
        if used <= 0:
            return None
        last, index = divmod(-(-used // batch) * batch - 1, chunks)
        return (last, 2 * index >= chunks or chunks == 1) if last < step else (step - 1, True)

    def stripings(self, connections: int) -> tuple[Striping | None, Striping | None]:
        """Return how first chunk and rest go over so many connections."""
        first_bytes, rest_bytes = self.parts_bytes
        if connections == 1:
            return None, None
        rest = -(-rest_bytes // self.chunk_bytes)
        return Striping(connections, 1, first_bytes), Striping(connections, rest, self.chunk_bytes) if rest else None


def all_reduce_ends_ns(
    starts_ns: Sequence[int],
    channels: Sequence[PrivateChannel],
    cut: RingCut,
    connections: Sequence[int] | None = None,
) -> list[int]:
    """Return when the replicas of a ring are through, each of which is ready at its start.

    ``channels[i]`` leads from replica i to the next one, over ``connections[i]`` of TCP (default: one each). Where
    there are more replicas than are given, those given repeat all around the ring.
    """
    positions = len(starts_ns)
    stripings = [cut.stripings(count) for count in connections or [1] * positions]
    first_bytes, rest_bytes = cut.parts_bytes
    # Of what comes: the first chunk of the last step, all of it, and all of the step before.
    first_ns, whole_ns, before_ns = list(starts_ns), list(starts_ns), list(starts_ns)
    left_ns = list(starts_ns)
    for _ in range(cut.steps):
        there = [(0, 0)] * positions
        for position, channel in enumerate(channels):
            first, rest = stripings[position]
            begin_ns = max(first_ns[position], before_ns[position])
            _, chunk_ns = channel.transmit(begin_ns, first_bytes, first)
            end_ns = max(chunk_ns, whole_ns[position], left_ns[position])
            if rest_bytes:
                end_ns = max(end_ns, channel.transmit(begin_ns, rest_bytes, rest)[1])
            left_ns[position] = end_ns
            latency_ns = channel.line.latency_ns
            there[(position + 1) % positions] = chunk_ns + latency_ns, end_ns + latency_ns
        before_ns = whole_ns
        first_ns = [max(chunk_ns, start_ns) for (chunk_ns, _), start_ns in zip(there, starts_ns, strict=True)]
        whole_ns = [max(end_ns, start_ns) for (_, end_ns), start_ns in zip(there, starts_ns, strict=True)]
    return [max(whole, channel.accepted_ns) for whole, channel in zip(whole_ns, channels, strict=True)]
