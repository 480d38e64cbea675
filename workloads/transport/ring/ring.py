"""Ring all-reduce: every replica of a stage ends up with the sum over all of them, in place.

With P replicas the data is cut into P segments. In step t of 2(P-1) the replica at position i sends one segment to the
next and gets the one before it in the ring's order from the previous: in the first half it adds what it gets to its
own (reduce-scatter), in the second it takes it over (all-gather). Each replica sends ``2 (P-1)/P`` of the data.
Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

A segment goes in chunks, and a chunk that is summed goes on at once as part of the next step. No segment is changed
while it may still be sent: what overwrites it has come round the ring because it was sent. Where payloads are blank
there is nothing to sum, and chunks go on without the rank's main thread.
"""

from collections import deque
from collections.abc import Callable

from workloads.transport.event import SegmentReceived, SegmentsSent
from workloads.transport.links_config import LinksConfig
from workloads.transport.ring.ring_round import RingRound
from workloads.transport.striped_transport import StripedTransport

Add = Callable[[memoryview, memoryview], None]


class RingAllReduce:
    """A rank's side of the all-reduce. Only the main thread calls ``run`` and ``heed``.

    Events that come to ``heed`` while no ``run`` needs them, because the previous replica is ahead, are kept: at most
    what the round's ``window`` lets through.
    """

    def __init__(self, plan: LinksConfig, transport: StripedTransport) -> None:
        if not plan.ring:
            raise ValueError("the plan has no ring")
        self._transport = transport
        self._position, self._replicas = plan.ring.index(plan.rank), len(plan.ring)
        self._connections = plan.ring_connections
        self._arrived: dict[int, deque[SegmentReceived]] = {}
        self._sent = False

    def handle(self, event: SegmentReceived | SegmentsSent) -> None:
        """Handle an event from the rank's queue."""
        if isinstance(event, SegmentsSent):
            self._sent = True
        else:
            self._arrived.setdefault(event.iteration, deque()).append(event)

    def run(
        self, iteration: int, data: memoryview, element_bytes: int, add: Add, await_event: Callable[[], None]
    ) -> None:
        """Sum ``data``, writable and contiguous, over all replicas, in place.

        ``add(total, part)`` adds ``part`` to ``total``, element by element; both are bytes of whole elements.
        ``await_event`` waits for one event of the rank's queue and handles it, those of the ring by ``heed``; what it
        raises ends the run. On return nothing of ``data`` is needed any more. Every replica must call with the same
        iteration, size and elements, once an iteration. Raises ValueError if the data cannot be cut, TransportError if
        the previous replica sends what does not fit.
        """
        ring = RingRound(iteration, data, element_bytes, self._position, self._replicas, connections=self._connections)
        self._sent = False
        self._transport.open_ring(ring.window)
        self._transport.send_segment(iteration, 0, *ring.first_segment())
        if self._transport.blank:
            self._transport.pass_segments_on(ring)
        else:
            self._sum(ring, add, await_event)
            self._transport.notify_when_segments_sent()
        while not self._sent:
            await_event()

    def _sum(self, ring: RingRound, add: Add, await_event: Callable[[], None]) -> None:
        arrived = self._arrived.setdefault(ring.iteration, deque())
        while not ring.complete:
            while not arrived:
                await_event()
            chunk = arrived.popleft()
            place, adds = ring.take(chunk)
            if adds:
                add(place, chunk.payload)
            else:
                place[:] = chunk.payload
            if ring.passes_on(chunk):
                self._transport.send_segment(
                    ring.iteration, chunk.step + 1, chunk.segment_bytes, [(chunk.offset, place)]
                )
            self._transport.give_back(chunk.payload)
            if used := ring.used():
                self._transport.give_segment_credit(used)
        del self._arrived[ring.iteration]
