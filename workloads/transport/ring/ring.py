"""Ring all-reduce: sum the gradients over all replicas of a stage, in place at each of them.

With P replicas the data is cut into P segments. There are 2(P-1) steps. In each, a replica sends one segment to the
next replica and receives the segment before it, in the ring's order, from the previous replica. In the first P-1 steps
it adds the received segment to its own (reduce-scatter); in the others it copies it (all-gather). Each replica sends
``2 (P-1)/P`` of the data. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", 2009.

A segment is sent in chunks, and a chunk is passed on as part of the next step as soon as it is summed. No segment is
overwritten while it may still be sent: what overwrites it has gone round the ring after it was sent. Blank payloads
have nothing to sum: the I/O thread passes their chunks on without the rank's main thread.
"""

from collections import deque
from collections.abc import Callable

from workloads.transport.event import SegmentReceived, SegmentsSent
from workloads.transport.links_config import LinksConfig
from workloads.transport.ring.ring_round import RingRound
from workloads.transport.striped_transport import StripedTransport

Add = Callable[[memoryview, memoryview], None]


class RingAllReduce:
    """One rank's side of the all-reduce. Only the main thread calls ``run`` and ``handle``.

    ``handle`` keeps events that come before their ``run``, because the previous replica is ahead: at most the chunks
    of one round's ``window``. Raises ValueError if the configuration has no ring.
    """

    def __init__(self, config: LinksConfig, transport: StripedTransport) -> None:
        if not config.ring:
            raise ValueError("the configuration has no ring")
        self._transport = transport
        self._position, self.replicas = config.ring.index(config.rank), len(config.ring)
        self._connections = config.ring_connections
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
        ``await_event`` waits for one event of the rank's queue and handles it, an event of the ring by ``handle``. Its
        errors end the run. After the return the transport no longer uses ``data``. Every replica must call this once an
        iteration, with the same iteration, size and element size. Where there are several all-reduces in an iteration,
        ``iteration`` counts them instead. Raise ValueError if the data cannot be cut, TransportError if the previous
        replica sends a chunk that does not fit.
        """
        self._sent = False
        if self._transport.blank:
            self.begin_blank(iteration, data, element_bytes)
        else:
            self._sum(self._begin(iteration, data, element_bytes), add, await_event)
            self._transport.notify_when_segments_sent()
        while not self._sent:
            await_event()

    def begin_blank(self, iteration: int, data: memoryview, element_bytes: int) -> None:
        """Begin an all-reduce of blank data, which the I/O thread carries out. A SegmentsSent event follows its end."""
        self._transport.pass_segments_on(self._begin(iteration, data, element_bytes))

    def _begin(self, iteration: int, data: memoryview, element_bytes: int) -> RingRound:
        ring = RingRound(iteration, data, element_bytes, self._position, self.replicas, connections=self._connections)
        self._transport.open_ring(ring.window)
        self._transport.send_segment(iteration, 0, *ring.first_segment())
        return ring

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
