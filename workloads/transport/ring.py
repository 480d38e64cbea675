"""Ring all-reduce: every replica of a stage ends up with the sum over all of them, in place.

With P replicas the data is cut into P segments. In step t of 2(P-1) the replica at position i sends one segment to the
next and gets the one before it in the ring's order from the previous: in the first half it adds what it gets to its
own (reduce-scatter), in the second it takes it over (all-gather). Each replica sends ``2 (P-1)/P`` of the data.
Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

A segment goes in chunks, and a chunk that is summed goes on at once as part of the next step. No segment is changed
while it may still be sent: what overwrites it has come round the ring because it was sent.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from workloads.transport.event import SegmentReceived, SegmentsSent
from workloads.transport.frame import CHUNK_BYTES
from workloads.transport.links_plan import LinksPlan
from workloads.transport.neighbour import TransportError
from workloads.transport.striped_transport import StripedTransport

Add = Callable[[memoryview, memoryview], None]

LEAST_CHUNK_BYTES = 256 * 1024
_CHUNKS_A_SEGMENT = 256


@dataclass(frozen=True)
class RingStep:
    """Which segments a replica sends and receives in one step, and whether it adds what it receives."""

    sends: int
    receives: int
    adds: bool


def ring_steps(position: int, replicas: int) -> tuple[RingStep, ...]:
    """The steps of the replica at ``position``; what a step receives, the next one sends."""
    return tuple(
        RingStep((position - step) % replicas, (position - step - 1) % replicas, step < replicas - 1)
        for step in range(2 * (replicas - 1))
    )


def cut_segments(total_bytes: int, element_bytes: int, replicas: int) -> tuple[tuple[int, int], ...]:
    """Where each segment begins and ends, cut between elements and equal to one element; some may be empty.

    Raises ValueError if the data is no whole number of elements, or an element larger than a chunk.
    """
    if not 1 <= element_bytes <= LEAST_CHUNK_BYTES:
        raise ValueError(f"element_bytes: {element_bytes} is not 1 to {LEAST_CHUNK_BYTES}")
    elements, left = divmod(total_bytes, element_bytes)
    if left:
        raise ValueError(f"{total_bytes} bytes are no whole number of elements of {element_bytes} bytes")
    bounds = [elements * index // replicas * element_bytes for index in range(replicas + 1)]
    return tuple(pairwise(bounds))


def ring_chunk_bytes(total_bytes: int, element_bytes: int, replicas: int) -> int:
    """How much goes at a time, in whole elements: 1/256 of a segment, between 256 KiB and what a frame holds.

    A replica passes on chunk by chunk what it has summed: large chunks fill the ring later, small ones cost more calls.
    """
    wanted = min(CHUNK_BYTES, max(LEAST_CHUNK_BYTES, total_bytes // replicas // _CHUNKS_A_SEGMENT))
    return wanted - wanted % element_bytes


class RingAllReduce:
    """A rank's side of the all-reduce; ``run`` and ``heed`` belong to its main thread.

    Whatever ``heed`` is given while no ``run`` needs it, because the previous replica is ahead, is kept: at most the
    size of one segment.
    """

    def __init__(self, plan: LinksPlan, transport: StripedTransport) -> None:
        if not plan.ring:
            raise ValueError("the plan has no ring")
        self._transport = transport
        self._replicas = len(plan.ring)
        self._steps = ring_steps(plan.ring.index(plan.rank), self._replicas)
        self._arrived: dict[int, deque[SegmentReceived]] = {}
        self._sent = False

    def heed(self, event: SegmentReceived | SegmentsSent) -> None:
        """Take an event that the rank's queue has brought."""
        if isinstance(event, SegmentsSent):
            self._sent = True
        else:
            self._arrived.setdefault(event.iteration, deque()).append(event)

    def run(
        self, iteration: int, data: memoryview, element_bytes: int, add: Add, await_event: Callable[[], None]
    ) -> None:
        """Sum ``data``, writable and contiguous, over all replicas, in place.

        ``add(total, part)`` adds ``part`` to ``total``, element by element; both are bytes of whole elements.
        ``await_event`` waits for one event of the rank's queue and heeds it, those of the ring by ``heed``; what it
        raises ends the run. On return nothing of ``data`` is needed any more. Every replica must call with the same
        iteration, size and elements, once an iteration. Raises ValueError if the data cannot be cut, TransportError if
        the previous replica sends what does not fit.
        """
        data = data.cast("B")
        segments = cut_segments(data.nbytes, element_bytes, self._replicas)
        chunk_bytes = ring_chunk_bytes(data.nbytes, element_bytes, self._replicas)
        window = max(-(-(end - start) // chunk_bytes) for start, end in segments) or 1
        expected = {
            (number, offset): min(chunk_bytes, end - start - offset)
            for number, step in enumerate(self._steps)
            for start, end in [segments[step.receives]]
            for offset in range(0, end - start, chunk_bytes)
        }
        self._transport.open_ring(window)
        start, end = segments[self._steps[0].sends]
        self._transport.send_segment(
            iteration,
            0,
            end - start,
            [(at, data[start + at : min(end, start + at + chunk_bytes)]) for at in range(0, end - start, chunk_bytes)],
        )
        arrived = self._arrived.setdefault(iteration, deque())
        used, batch = 0, max(1, window // 4)
        while expected:
            while not arrived:
                await_event()
            chunk = arrived.popleft()
            step = self._steps[chunk.step]
            start, end = segments[step.receives]
            length = expected.pop((chunk.step, chunk.offset), None)
            if chunk.segment_bytes != end - start or length != chunk.payload.nbytes:
                raise TransportError(
                    f"{chunk.neighbour}: it sent a chunk of {chunk.payload.nbytes} bytes at {chunk.offset} of a "
                    f"segment of {chunk.segment_bytes} bytes in step {chunk.step}, which does not fit or came before"
                )
            place = data[start + chunk.offset : start + chunk.offset + length]
            if step.adds:
                add(place, chunk.payload)
            elif not self._transport.blank:
                place[:] = chunk.payload
            if chunk.step + 1 < len(self._steps):
                self._transport.send_segment(iteration, chunk.step + 1, end - start, [(chunk.offset, place)])
            self._transport.give_back(chunk.payload)
            used += 1
            if used == batch or not expected:
                self._transport.give_segment_credit(used)
                used = 0
        del self._arrived[iteration]
        self._sent = False
        self._transport.tell_when_segments_sent()
        while not self._sent:
            await_event()
