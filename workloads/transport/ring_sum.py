"""Ring all-reduce: sum the gradients over all replicas of a stage, in place at each of them.

With P replicas the data is cut into P segments. There are 2(P-1) steps. In each, a replica sends one segment to the
next replica and receives the segment before it, in the ring's order, from the previous replica. In the first P-1 steps
it adds the received segment to its own (reduce-scatter); in the others it copies it (all-gather). Each replica sends
``2 (P-1)/P`` of the data. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", 2009. Over rings one in the other, ``wanbed.workloads.transport.ring_round`` has the order of steps.

A segment is sent in chunks, and a chunk is passed on as part of the next step as soon as it is summed. No segment is
overwritten while it may still be sent: what overwrites it has gone round the ring after it was sent. Blank payloads
have nothing to sum: the I/O thread passes their chunks on without the rank's main thread. Buckets of gradients are
summed one after the other in a thread of their own, beside the one that still computes.
"""

from collections import deque
from collections.abc import Callable
from math import prod

from wanbed.workloads.transport.all_reduce import Add, AllReduce
from wanbed.workloads.transport.event import Event, PartReceived, PartSent, SegmentReceived, SegmentsSent
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.ring_round import RingRound, ring_passes, summed_segment
from wanbed.workloads.transport.striped_transport import StripedTransport
from wanbed.workloads.transport.summing_thread import SumEvents, SummingThread


class RingAllReduce:
    """One rank's side of the all-reduce. Only the main thread calls ``run`` and ``handle``.

    It goes over the rings of replicas, or if it is ``of_norm`` over that of the gradient norm. ``handle`` keeps events
    that come before their ``run``, because the previous replica is ahead: at most the chunks of one round's ``window``.
    Raises ValueError if the configuration has no such ring.
    """

    def __init__(self, config: LinksConfig, transport: StripedTransport, *, of_norm: bool = False) -> None:
        before = len(config.rings.replicas) if of_norm else 0
        self._rank, self._rings = config.rank, config.rings.every[before:] if of_norm else config.rings.replicas
        if not self._rings:
            raise ValueError("the configuration has no ring")
        self._transport, self._before = transport, before
        self.replicas = prod(len(ring.ranks) for ring in self._rings)
        """The number of replicas."""
        self._passes = ring_passes([len(ring.ranks) for ring in self._rings])
        self._arrived: dict[tuple[int, int], deque[SegmentReceived]] = {}
        self._sent = False

    def handle(self, event: SegmentReceived | SegmentsSent) -> None:
        """Handle an event from the rank's queue."""
        if isinstance(event, SegmentsSent):
            self._sent = True
            return
        ring = event.ring - self._before
        which = next(
            number for number, each in enumerate(self._passes) if each.ring == ring and event.step in each.steps
        )
        self._arrived.setdefault((event.iteration, which), deque()).append(event)

    def run(
        self, iteration: int, data: memoryview, element_bytes: int, add: Add, await_event: Callable[[], None]
    ) -> None:
        """Sum ``data``, writable and contiguous, over all replicas, in place.

        ``add(total, part)`` adds ``part`` to ``total``, element by element; both are bytes of whole elements.
        ``await_event`` waits for one event of the rank's queue and handles it, an event of the rings by ``handle``. Its
        errors end the run. After the return the transport no longer uses ``data``. Every replica must call this once an
        iteration, with the same iteration, size and element size. Where there are several all-reduces in an iteration,
        ``iteration`` counts them instead. Raise ValueError if the data cannot be cut, TransportError if the previous
        replica sends a chunk that does not fit.
        """
        for which, each in enumerate(self._rounds(iteration, data, element_bytes)):
            self._sent = False
            self._begin(each)
            if self._transport.blank:
                self._transport.pass_segments_on(each)
            else:
                self._sum(each, which, add, await_event)
                self._transport.notify_when_segments_sent(each.ring)
            while not self._sent:
                await_event()

    def begin_blank(self, iteration: int, data: memoryview, element_bytes: int, steps: range) -> None:
        """Begin a collective of blank data over a single ring, which the I/O thread carries out.

        It makes the ``steps`` of an all-reduce that are given. A SegmentsSent event follows its end.
        """
        (ring,) = self._rings
        ranks = len(ring.ranks)
        only = RingRound(
            iteration,
            data.cast("B"),
            element_bytes,
            ring.ranks.index(self._rank),
            ranks,
            connections=ring.connections,
            piece_bytes=ring.piece_bytes,
            steps=steps,
        )
        self._begin(only)
        self._transport.pass_segments_on(only)

    def _rounds(self, iteration: int, data: memoryview, element_bytes: int) -> list[RingRound]:
        """Return what each pass does at this rank."""
        parts, positions = [data.cast("B")], [ring.ranks.index(self._rank) for ring in self._rings]
        for ring, position in zip(self._rings[:-1], positions, strict=False):
            parts.append(summed_segment(parts[-1], element_bytes, position, len(ring.ranks)))
        return [
            RingRound(
                iteration,
                parts[each.ring],
                element_bytes,
                positions[each.ring],
                len(self._rings[each.ring].ranks),
                connections=self._rings[each.ring].connections,
                piece_bytes=self._rings[each.ring].piece_bytes,
                ring=self._before + each.ring,
                steps=each.steps,
            )
            for each in self._passes
        ]

    def _begin(self, ring: RingRound) -> None:
        self._transport.open_ring(ring.window, ring.ring)
        self._transport.send_segment(ring.ring, ring.iteration, ring.steps.start, *ring.first_segment())

    def _sum(self, ring: RingRound, which: int, add: Add, await_event: Callable[[], None]) -> None:
        arrived = self._arrived.setdefault((ring.iteration, which), deque())
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
                    ring.ring, ring.iteration, chunk.step + 1, chunk.segment_bytes, [(chunk.offset, place)]
                )
            self._transport.give_back(chunk.payload)
            if used := ring.used():
                self._transport.give_segment_credit(used, ring.ring)
        del self._arrived[ring.iteration, which]


class BucketThread(SummingThread):
    """The all-reduces of one rank, as ``SummingThread`` has them."""

    def __init__(
        self,
        over: AllReduce,
        events: SumEvents,
        element_bytes: int,
        add: Add,
        report: Callable[[Event], None],
    ) -> None:
        def run(number: int, data: memoryview, await_event: Callable[[], None]) -> int:
            over.run(number, data, element_bytes, add, await_event)
            return over.replicas

        def handle(event: SegmentReceived | SegmentsSent | PartReceived | PartSent) -> None:
            assert isinstance(event, SegmentReceived | SegmentsSent)
            over.handle(event)

        super().__init__(run, handle, events, report)
