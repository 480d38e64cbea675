"""One all-reduce at one replica: it cuts the data, and knows which chunks to expect and where each belongs.

``workloads.transport.ring.ring`` describes the ring and its source.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workloads.transport.event import SegmentReceived
from workloads.transport.frames.frame import CHUNK_BYTES
from workloads.transport.peer import TransportError

LEAST_CHUNK_BYTES = 256 * 1024
_CHUNKS_A_SEGMENT = 256
_SMALL_CHUNK_BYTES = 16 * 1024
_CHUNKS_A_CONNECTION = 4
"""So many chunks of a segment for each of several connections: else a small segment would go over one of them."""
_EARLY_BYTES = 64 * 2**20
"""What may be on its way to the next replica, or wait there: several segments, so that a step over a long line does not
wait until the one before is known to have come."""


@dataclass(frozen=True)
class RingStep:
    """The segments that a replica sends and receives in one step, and whether it adds what it receives."""

    sends: int
    receives: int
    adds: bool


def ring_steps(position: int, replicas: int) -> tuple[RingStep, ...]:
    """Return the steps of the replica at ``position``; what a step receives, the next one sends."""
    return tuple(
        RingStep((position - step) % replicas, (position - step - 1) % replicas, step < replicas - 1)
        for step in range(2 * (replicas - 1))
    )


def cut_segments(total_bytes: int, element_bytes: int, replicas: int) -> tuple[tuple[int, int], ...]:
    """Return where each segment begins and ends, cut between elements and equal to one element; some may be empty.

    Raises ValueError if the data is no whole number of elements, or an element larger than a chunk.
    """
    if not 1 <= element_bytes <= LEAST_CHUNK_BYTES:
        raise ValueError(f"element_bytes: {element_bytes} is not 1 to {LEAST_CHUNK_BYTES}")
    elements, left = divmod(total_bytes, element_bytes)
    if left:
        raise ValueError(f"{total_bytes} bytes are no whole number of elements of {element_bytes} bytes")
    bounds = [elements * index // replicas * element_bytes for index in range(replicas + 1)]
    return tuple(pairwise(bounds))


def ring_chunk_bytes(total_bytes: int, element_bytes: int, replicas: int, connections: int = 1) -> int:
    """Return the bytes of a chunk, in whole elements: 1/256 of a segment, between 256 KiB and what a frame holds.

    Less, down to 16 KiB, where several ``connections`` would have fewer than four chunks of a segment each. A replica
    passes on chunk by chunk what it has summed: large chunks fill the ring later, small ones cost more calls.
    """
    segment_bytes = total_bytes // replicas
    wanted = min(CHUNK_BYTES, max(LEAST_CHUNK_BYTES, segment_bytes // _CHUNKS_A_SEGMENT))
    if connections > 1:
        wanted = min(wanted, max(_SMALL_CHUNK_BYTES, segment_bytes // (_CHUNKS_A_CONNECTION * connections)))
    return max(wanted - wanted % element_bytes, element_bytes)


def ring_window_chunks(segments: Sequence[int], chunk_bytes: int) -> int:
    """Return how many chunks may be on their way to a replica or wait there: all of a segment at least.

    ``segments`` are how many chunks each segment has.
    """
    return max(*segments, min(sum(segments), _EARLY_BYTES // chunk_bytes)) or 1


class RingRound:
    """The expected and the received chunks in one all-reduce of ``data``.

    Raises ValueError if the data is not bytes of whole elements.
    """

    def __init__(
        self,
        iteration: int,
        data: memoryview,
        element_bytes: int,
        position: int,
        replicas: int,
        *,
        connections: int = 1,
    ) -> None:
        self.iteration = iteration
        self._data = data.cast("B")
        self._segments = cut_segments(self._data.nbytes, element_bytes, replicas)
        self._steps = ring_steps(position, replicas)
        self._chunk_bytes = ring_chunk_bytes(self._data.nbytes, element_bytes, replicas, connections)
        counts = [-(-(end - start) // self._chunk_bytes) for start, end in self._segments]
        self.window = ring_window_chunks(counts, self._chunk_bytes)
        """How many chunks may be on their way to a replica or wait there."""
        self._missing = [counts[step.receives] for step in self._steps]
        self._steps_open = sum(missing > 0 for missing in self._missing)
        self._came: dict[int, set[int]] = {}
        self._batch = max(1, self.window // 4)
        self._unreported = 0

    @property
    def complete(self) -> bool:
        """Whether every chunk has come."""
        return not self._steps_open

    def first_segment(self) -> tuple[int, Sequence[tuple[int, memoryview]]]:
        """Return the size of the segment that this replica sends first, and its chunks, each with its offset there."""
        start, end = self._segments[self._steps[0].sends]
        step = self._chunk_bytes
        return end - start, [
            (at, self._data[start + at : min(end, start + at + step)]) for at in range(0, end - start, step)
        ]

    def take(self, chunk: SegmentReceived) -> tuple[memoryview, bool]:
        """Return the memory where a received chunk belongs, and whether it is to be added to what is there.

        Raises TransportError if it does not fit, or has come before.
        """
        step = self._steps[chunk.step]
        start, end = self._segments[step.receives]
        length = min(self._chunk_bytes, end - start - chunk.offset)
        if (
            chunk.segment_bytes != end - start
            or length != chunk.payload.nbytes
            or not self._comes_first(chunk.step, chunk.offset)
        ):
            raise TransportError(
                f"{chunk.peer}: it sent a chunk of {chunk.payload.nbytes} bytes at {chunk.offset} of a "
                f"segment of {chunk.segment_bytes} bytes in step {chunk.step}, which does not fit or came before"
            )
        self._unreported += 1
        return self._data[start + chunk.offset : start + chunk.offset + length], step.adds

    def _comes_first(self, step: int, offset: int) -> bool:
        """Return whether a chunk of that step begins at the offset and has not come before; then enter it.

        Offsets are kept only of steps that are under way: as many as a window has, however many steps there are.
        """
        came = self._came.setdefault(step, set())
        if not self._missing[step] or offset % self._chunk_bytes or offset in came:
            return False
        came.add(offset)
        self._missing[step] -= 1
        if not self._missing[step]:
            del self._came[step]
            self._steps_open -= 1
        return True

    def passes_on(self, chunk: SegmentReceived) -> bool:
        """Return whether the chunk goes on to the next replica, as part of the next step."""
        return chunk.step + 1 < len(self._steps)

    def used(self) -> int:
        """Return how many chunks the previous replica may get credit for now: several at a time, none meanwhile."""
        if self._unreported < self._batch and not self.complete:
            return 0
        used, self._unreported = self._unreported, 0
        return used
