"""The steps of a ring all-reduce: rounds, passes over rings one in the other, and buckets. No I/O.

``wanbed.workloads.transport.ring_sum`` describes the algorithm and its source. A round cuts the data of one replica,
and finds the place of each chunk that arrives. A pass is some steps of one ring. With a single ring there is one pass:
all its steps. With two, each replica is in a ring of its datacenter and in one of its counterparts in the others. Three
passes follow each other: reduce-scatter inside, after which every replica has one segment of its datacenter's sum;
all-reduce of that segment across; all-gather inside. Of G bytes over D datacenters of R replicas, a replica sends
``2 (D-1)/D x G/R`` across and ``2 (R-1)/R x G`` inside. Source: Mikami et al., "Massively distributed SGD:
ImageNet/ResNet-50 training in a flash", 2018 (2D-torus all-reduce). Buckets of a stage's gradients are all-reduced one
after the other while its backward goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from wanbed.workloads.transport.event import SegmentReceived
from wanbed.workloads.transport.frame import CHUNK_BYTES
from wanbed.workloads.transport.peer import TransportError

LEAST_CHUNK_BYTES = 256 * 1024

_CHUNKS_A_SEGMENT = 256

_SMALL_CHUNK_BYTES = 16 * 1024

_CHUNKS_A_CONNECTION = 4
"""Chunks of a segment for each of several connections. With fewer, a small segment would use only some of them."""

_EARLY_BYTES = 64 * 2**20
"""Bytes that may be at the next replica or on their way there. They cover several segments, so that over a link with a
long latency a step does not wait until the step before is known to have arrived."""


@dataclass(frozen=True)
class RingStep:
    """The indices of the segments that a replica sends and receives in one step, and whether it adds or copies."""

    sends: int
    receives: int
    adds: bool


def ring_steps(position: int, replicas: int) -> tuple[RingStep, ...]:
    """Return the steps of the replica at ``position``. Each step sends the segment that the step before received."""
    return tuple(
        RingStep((position - step) % replicas, (position - step - 1) % replicas, step < replicas - 1)
        for step in range(2 * (replicas - 1))
    )


def cut_segments(total_bytes: int, element_bytes: int, replicas: int) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each segment in bytes. Sizes differ by one element at most; segments may be empty.

    Raise ValueError if the data is not a whole number of elements, or an element is larger than a chunk.
    """
    elements = count_elements(total_bytes, element_bytes)
    bounds = [elements * index // replicas * element_bytes for index in range(replicas + 1)]
    return tuple(pairwise(bounds))


def count_elements(total_bytes: int, element_bytes: int) -> int:
    """Return how many elements data has. Raise ValueError as ``cut_segments`` does."""
    if not 1 <= element_bytes <= LEAST_CHUNK_BYTES:
        raise ValueError(f"element_bytes: {element_bytes} is not 1 to {LEAST_CHUNK_BYTES}")
    elements, left = divmod(total_bytes, element_bytes)
    if left:
        raise ValueError(f"{total_bytes} bytes are no whole number of elements of {element_bytes} bytes")
    return elements


def ring_chunk_bytes(
    total_bytes: int, element_bytes: int, replicas: int, connections: int = 1, piece_bytes: int | None = None
) -> int:
    """Return the size of a chunk in bytes, whole elements: ``piece_bytes``, or 1/256 of a segment.

    That is 256 KiB at least and ``CHUNK_BYTES`` at most. It is smaller, down to 16 KiB, where several ``connections``
    would have fewer than four chunks of a segment each. A replica passes its sums on chunk by chunk: larger chunks fill
    the ring later, smaller ones cost more calls.
    """
    if piece_bytes is not None:
        return max(piece_bytes - piece_bytes % element_bytes, element_bytes)
    segment_bytes = total_bytes // replicas
    wanted = min(CHUNK_BYTES, max(LEAST_CHUNK_BYTES, segment_bytes // _CHUNKS_A_SEGMENT))
    if connections > 1:
        wanted = min(wanted, max(_SMALL_CHUNK_BYTES, segment_bytes // (_CHUNKS_A_CONNECTION * connections)))
    return max(wanted - wanted % element_bytes, element_bytes)


def ring_window_chunks(segments: Sequence[int], chunk_bytes: int) -> int:
    """Return how many chunks may be at a replica or on their way there: at least those of the largest segment.

    ``segments`` holds the number of chunks of each segment.
    """
    return max(*segments, min(sum(segments), _EARLY_BYTES // chunk_bytes)) or 1


class SegmentCut(NamedTuple):
    """The cut of data into the segments that go round a ring, and these into chunks: starts and ends, in bytes."""

    segments: tuple[tuple[int, int], ...]
    chunk_bytes: int

    @staticmethod
    def even(
        total_bytes: int, element_bytes: int, replicas: int, connections: int, piece_bytes: int | None = None
    ) -> "SegmentCut":
        """Cut into a segment for each replica."""
        return SegmentCut(
            cut_segments(total_bytes, element_bytes, replicas),
            ring_chunk_bytes(total_bytes, element_bytes, replicas, connections, piece_bytes),
        )

    @staticmethod
    def chained(
        total_bytes: int, element_bytes: int, replicas: int, connections: int, piece_bytes: int | None = None
    ) -> "SegmentCut":
        """Cut into one segment, which the second replica sends first, and empty ones.

        It is summed on its way to the first replica, and copied on the way from that to the last one.
        """
        ((start, end),), chunk_bytes = SegmentCut.even(total_bytes, element_bytes, 1, connections, piece_bytes)
        return SegmentCut(((0, 0), (start, end), *[(end, end)] * (replicas - 2)), chunk_bytes)

    def chunks(self, segment: int) -> int:
        """Return the number of chunks in a segment."""
        start, end = self.segments[segment]
        return -(-(end - start) // self.chunk_bytes)


class RingRound:
    """The expected and the received chunks in one all-reduce of ``data``, or in some steps of it.

    ``ring`` is the number of the ring that it goes round, ``cut`` how the data is cut, by default evenly.

    Raises ValueError if ``data`` is not a whole number of elements.
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
        piece_bytes: int | None = None,
        ring: int = 0,
        steps: range | None = None,
        cut: SegmentCut | None = None,
    ) -> None:
        self.iteration, self.ring = iteration, ring
        self.steps = range(2 * (replicas - 1)) if steps is None else steps
        """The steps of the ring that are made, by default all."""
        self._data = data.cast("B")
        cut = cut or SegmentCut.even(self._data.nbytes, element_bytes, replicas, connections, piece_bytes)
        self._segments, self._chunk_bytes = cut
        self._steps = ring_steps(position, replicas)
        counts = [cut.chunks(segment) for segment in range(replicas)]
        self.window = ring_window_chunks(counts, self._chunk_bytes)
        """The most chunks that may be at a replica or on their way there."""
        self._missing = [counts[step.receives] for step in self._steps]
        self._steps_open = sum(self._missing[step] > 0 for step in self.steps)
        self._came: dict[int, set[int]] = {}
        self._batch = max(1, self.window // 4)
        self._unreported = 0

    @property
    def complete(self) -> bool:
        """Return whether every chunk has arrived."""
        return not self._steps_open

    def first_segment(self) -> tuple[int, Sequence[tuple[int, memoryview]]]:
        """Return the size in bytes of the segment that this replica sends first, and its chunks with their offsets."""
        step = self.steps.start
        start, end = self._segments[self._steps[step].sends]
        return end - start, [(at, self.chunk(step, at)[1]) for at in range(0, end - start, self._chunk_bytes)]

    def chunk(self, step: int, offset: int) -> tuple[int, memoryview]:
        """Return the size in bytes of the segment that this replica sends in a step, and its chunk at an offset."""
        start, end = self._segments[self._steps[step].sends]
        return end - start, self._data[start + offset : min(end, start + offset + self._chunk_bytes)]

    def awaits(self, chunk: SegmentReceived) -> bool:
        """Return whether the chunk is of this all-reduce, and of one of the steps that are made."""
        return chunk.iteration == self.iteration and chunk.step in self.steps

    def take(self, chunk: SegmentReceived) -> tuple[memoryview, bool]:
        """Return the memory where a received chunk belongs, and whether to add it to the contents (else copy it).

        Raise TransportError if the chunk does not fit or came before.
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
        """Return whether a chunk of that step begins at the offset and has not come before. If so, record it.

        Offsets are kept only for steps in progress: at most those of a window, however many steps there are.
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
        """Return whether the chunk is passed on to the next replica, as part of the next step."""
        return chunk.step + 1 in self.steps

    def used(self) -> int:
        """Return how many chunks to give the previous replica credit for now: a batch at a time, otherwise 0."""
        if self._unreported < self._batch and not self.complete:
            return 0
        used, self._unreported = self._unreported, 0
        return used


@dataclass(frozen=True, slots=True)
class RingPass:
    """Some steps of the ring with that number, one after the other."""

    ring: int
    steps: range


def ring_passes(replicas: Sequence[int]) -> tuple[RingPass, ...]:
    """Return the passes over rings of so many replicas each, the first of which is all around the next."""
    last = len(replicas) - 1
    scatters = [RingPass(ring, range(replicas[ring] - 1)) for ring in range(last)]
    gathers = [RingPass(ring, range(replicas[ring] - 1, 2 * (replicas[ring] - 1))) for ring in range(last)]
    return (*scatters, RingPass(last, range(2 * (replicas[last] - 1))), *gathers[::-1])


def summed_segment(data: memoryview, element_bytes: int, position: int, replicas: int) -> memoryview:
    """Return the segment of ``data`` that the replica at ``position`` has the sum of after a reduce-scatter."""
    start, end = cut_segments(data.nbytes, element_bytes, replicas)[(position + 1) % replicas]
    return data[start:end]


def bucket_count(total_bytes: int, bucket_bytes: int) -> int:
    """Return how many buckets ``total_bytes`` of gradients are cut into: as few as hold ``bucket_bytes`` at most."""
    return max(-(-total_bytes // bucket_bytes), 1)


def cut_buckets(total_bytes: int, element_bytes: int, buckets: int) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each bucket in bytes, in the order in which a backward completes them.

    A backward computes gradients from the last layer to the first, so the last bytes come first. Sizes differ by one
    element at most. Raise ValueError if the data is not a whole number of elements.
    """
    return cut_segments(total_bytes, element_bytes, buckets)[::-1]


def complete_ns(start_ns: int, end_ns: int, bucket: int, buckets: int, virtual_stages: int = 1) -> int:
    """Return when a GPU's last backward, from ``start_ns`` to ``end_ns``, completes a bucket, counted from 0.

    A backward whose layers are not known is taken to compute gradients evenly over its time. Of several virtual stages
    it computes the last one's; the gradients of the others are complete when it begins.
    """
    computed = max((bucket + 1) * virtual_stages - (virtual_stages - 1) * buckets, 0)
    return start_ns + (end_ns - start_ns) * computed // buckets
