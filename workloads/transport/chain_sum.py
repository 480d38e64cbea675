"""Reduce and broadcast along a chain: the replicas sum into the first of them, which then sends the sum to all.

The chain is the ring of the replicas. In the reduce the second replica sends its data to the third, which adds its own
and passes the sum on, and so on around to the first. In the broadcast the first sends the sum to the second, and so on
to the last. Both go chunk by chunk, and the broadcast begins when the reduce has ended. Each takes ``A / R``, a latency
for each of P - 1 hops, and a chunk for all but one of them. Source: NCCL's ``reduce`` and ``broadcast`` over a ring;
one after the other they are the sum of a central parameter server among the replicas.
"""

from collections import deque
from collections.abc import Callable

from wanbed.workloads.transport.all_reduce import Add
from wanbed.workloads.transport.event import SegmentReceived, SegmentsSent
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.ring_round import RingRound, SegmentCut
from wanbed.workloads.transport.striped_transport import StripedTransport

_RING = 0


class ChainAllReduce:
    """One rank's side of the reduce and of the broadcast, in place of ``RingAllReduce``, and called as that is.

    Raises ValueError if the configuration has no chain.
    """

    def __init__(self, config: LinksConfig, transport: StripedTransport) -> None:
        if not config.rings.chained or not config.rings.replicas:
            raise ValueError("the configuration has no chain")
        self._transport, self._ring = transport, config.rings.replicas[_RING]
        self._position = self._ring.ranks.index(config.rank)
        self.replicas = len(self._ring.ranks)
        """The number of replicas."""
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
        """Sum ``data`` over all replicas, in place, as ``RingAllReduce.run`` says."""
        self._sent = False
        transport = self._transport
        ring = self._ring
        cut = SegmentCut.chained(data.nbytes, element_bytes, self.replicas, ring.connections, ring.piece_bytes)
        whole = RingRound(
            iteration,
            data,
            element_bytes,
            self._position,
            self.replicas,
            cut=cut,
        )
        transport.open_ring(whole.window, _RING)
        transport.send_segment(_RING, iteration, whole.steps.start, *whole.first_segment())
        arrived = self._arrived.setdefault(iteration, deque())
        summed: list[tuple[int, memoryview]] = []
        while not whole.complete:
            while not arrived:
                await_event()
            chunk = arrived.popleft()
            place, adds = whole.take(chunk)
            if not transport.blank:
                if adds:
                    add(place, chunk.payload)
                else:
                    place[:] = chunk.payload
            if self._position == 0:
                summed.append((chunk.offset, place))
            elif whole.passes_on(chunk):
                transport.send_segment(_RING, iteration, chunk.step + 1, chunk.segment_bytes, [(chunk.offset, place)])
            transport.give_back(chunk.payload)
            if used := whole.used():
                transport.give_segment_credit(used, _RING)
        del self._arrived[iteration]
        if summed:
            transport.send_segment(_RING, iteration, self.replicas - 1, data.nbytes, summed)
        transport.notify_when_segments_sent(_RING)
        while not self._sent:
            await_event()
