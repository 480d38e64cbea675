"""Compute when each replica of a stage has the result of a ring all-reduce over private channels.

The algorithm is that of ``wanbed.workloads.transport.ring.ring``. With P replicas the gradients are cut into P
segments, and in each of 2(P-1) steps every replica sends one segment to the next replica. Segments are sent in chunks.
A replica begins a step once the first chunk of the step's segment and the whole segment of the step before have arrived
from the previous replica, and ends it no earlier than the step's segment has arrived. For A bytes on equal lines of
rate R without latency this takes ``2 (P-1)/P x A / R``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.workloads.transport.ring.ring_round import ring_chunk_bytes, ring_window_chunks


@dataclass(frozen=True)
class RingCut:
    """The cut of gradients into segments and chunks. Segments whose sizes differ by a byte count as equal.

    A segment is sent as two parts: its first chunk, with which the next replica can begin its next step, and the rest.
    With ``halved`` a round has half of the steps: it is a reduce-scatter or an all-gather, which take equally long.
    """

    replicas: int
    segment_bytes: int
    chunk_bytes: int
    halved: bool = False

    @staticmethod
    def of(size_bytes: int, replicas: int, connections: int = 1, *, halved: bool = False) -> "RingCut":
        """Cut as ``wanbed.workloads.transport.ring.ring_round`` does; ``connections`` is the most of two replicas."""
        chunk_bytes = ring_chunk_bytes(size_bytes, 1, replicas, connections)
        return RingCut(replicas, -(-size_bytes // replicas), chunk_bytes, halved)

    @property
    def steps(self) -> int:
        """The number of segments that each replica sends in a round."""
        return (self.replicas - 1) * (1 if self.halved else 2)

    @property
    def parts_bytes(self) -> tuple[int, int]:
        """The sizes of a segment's first chunk and of its rest."""
        first_bytes = min(self.chunk_bytes, self.segment_bytes)
        return first_bytes, self.segment_bytes - first_bytes

    @property
    def chunks(self) -> int:
        """The number of chunks in a segment."""
        return -(-self.segment_bytes // self.chunk_bytes)

    @property
    def window_holds_all(self) -> bool:
        """Whether the window admits all chunks of the data at once, on their way to a replica or waiting there."""
        return ring_window_chunks([self.chunks] * self.replicas, self.chunk_bytes) == self.replicas * self.chunks

    def awaited(self, step: int) -> tuple[int, bool] | None:
        """Return what the next replica must have reported as used before ``step`` begins, None if nothing.

        The result is a step and whether all of it is needed or only its first chunk. It assumes a window that holds all
        chunks. Replicas report used chunks in batches of a quarter of the window.
        """
        chunks, window = self.chunks, self.replicas * self.chunks
        batch = max(1, window // 4)
        used = step * chunks + min(chunks, 2) - window
        if used <= 0:
            return None
        last, index = divmod(-(-used // batch) * batch - 1, chunks)
        return (last, 2 * index >= chunks or chunks == 1) if last < step else (step - 1, True)

    def stripings(self, connections: int) -> tuple[Striping | None, Striping | None]:
        """Return the striping of first chunk and rest over ``connections``, None where there is nothing to stripe."""
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
    """Return when each replica of a ring has the result, given when each is ready.

    ``channels[i]`` leads from replica i to the next one, over ``connections[i]`` TCP connections (default: one each).
    If the ring has more replicas than are given, the given ones repeat around the ring.
    """
    positions = len(starts_ns)
    stripings = [cut.stripings(count) for count in connections or [1] * positions]
    first_bytes, rest_bytes = cut.parts_bytes
    # Arrivals at each position: the first chunk of the last step, all of the last step, all of the step before it.
    first_ns, whole_ns, before_ns = list(starts_ns), list(starts_ns), list(starts_ns)
    left_ns = list(starts_ns)
    for _ in range(cut.steps):
        arrivals_ns = [(0, 0)] * positions
        for position, channel in enumerate(channels):
            first, rest = stripings[position]
            begin_ns = max(first_ns[position], before_ns[position])
            _, chunk_ns = channel.transmit(begin_ns, first_bytes, first)
            end_ns = max(chunk_ns, whole_ns[position], left_ns[position])
            if rest_bytes:
                end_ns = max(end_ns, channel.transmit(begin_ns, rest_bytes, rest)[1])
            left_ns[position] = end_ns
            latency_ns = channel.line.latency_ns
            arrivals_ns[(position + 1) % positions] = chunk_ns + latency_ns, end_ns + latency_ns
        before_ns = whole_ns
        first_ns = [max(chunk_ns, start_ns) for (chunk_ns, _), start_ns in zip(arrivals_ns, starts_ns, strict=True)]
        whole_ns = [max(end_ns, start_ns) for (_, end_ns), start_ns in zip(arrivals_ns, starts_ns, strict=True)]
    return [max(whole, channel.accepted_ns) for whole, channel in zip(whole_ns, channels, strict=True)]
