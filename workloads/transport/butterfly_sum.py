"""Butterfly all-reduce: each replica owns a part of the data, and exchanges it with all others at once.

With k replicas the data is cut into k segments, and the replica at position p owns segment p. Every replica sends each
other one that one's segment (scatter). The owner adds them, and sends the sum to all others (gather). Each replica
sends ``2 (k-1)/k`` of the data, as in a ring, but in two steps, over the connections to all others at the same time.
Sources: Ryabinin et al., "Moshpit SGD", 2021; the averaging of hivemind, "butterfly all-reduce"; a sharded parameter
server whose servers are the replicas themselves sends the same.

A segment is sent in chunks, and a chunk is sent back as soon as all replicas' have come and are added: in the order of
ranks, so that the same data gives the same bits. An owner holds the chunks that have come until then, at most all
others' copies of its segment. A chunk is overwritten by its sum only when its owner has it from here.
"""

from collections import deque
from collections.abc import Callable, Sequence

from wanbed.workloads.transport.all_reduce import Add
from wanbed.workloads.transport.event import SegmentReceived, SegmentsSent
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.ring_round import cut_segments, ring_chunk_bytes, ring_window_chunks
from wanbed.workloads.transport.striped_transport import StripedTransport

SCATTER, GATHER = range(2)
"""The two steps: in the first a replica sends each part to its owner, in the second the sum of its own to all."""


class ButterflyAllReduce:
    """One rank's side of the all-reduce, in place of ``RingAllReduce``, and called as that is.

    The pair with each other replica is a ring of two of the configuration: chunks to a peer go round that. Raises
    ValueError if the configuration has none.
    """

    def __init__(self, config: LinksConfig, transport: StripedTransport) -> None:
        pairs = config.rings.replicas
        if not config.rings.butterfly or not pairs:
            raise ValueError("the configuration has no butterfly")
        self._transport = transport
        peers = [next(rank for rank in pair.ranks if rank != config.rank) for pair in pairs]
        order = sorted([config.rank, *peers])
        self._position = order.index(config.rank)
        self._positions = [order.index(peer) for peer in peers]
        """The position of the replica at the other end of each ring of two."""
        self._connections, self._piece_bytes = max(pair.connections for pair in pairs), pairs[0].piece_bytes
        self.replicas = len(order)
        """The number of replicas."""
        self._arrived: dict[int, deque[SegmentReceived]] = {}
        self._unsent: set[int] = set()

    def handle(self, event: SegmentReceived | SegmentsSent) -> None:
        """Handle an event from the rank's queue."""
        if isinstance(event, SegmentsSent):
            self._unsent.discard(event.ring)
        else:
            self._arrived.setdefault(event.iteration, deque()).append(event)

    def run(
        self, iteration: int, data: memoryview, element_bytes: int, add: Add, await_event: Callable[[], None]
    ) -> None:
        """Sum ``data`` over all replicas, in place, as ``RingAllReduce.run`` says."""
        cut = _Cut(data.cast("B"), element_bytes, self.replicas, self._connections, self._piece_bytes)
        transport, own = self._transport, _OwnSegment(cut, self._position, self.replicas - 1)
        for ring, position in enumerate(self._positions):
            transport.open_ring(cut.window, ring)
            transport.send_segment(ring, iteration, SCATTER, *cut.segment(position))
        awaited = {(ring, SCATTER): cut.offsets(self._position) for ring in range(self.replicas - 1)}
        awaited |= {(ring, GATHER): cut.offsets(position) for ring, position in enumerate(self._positions)}
        arrived = self._arrived.setdefault(iteration, deque())
        used = [0] * (self.replicas - 1)
        missing = sum(map(len, awaited.values()))
        while missing:
            while not arrived:
                await_event()
            chunk = arrived.popleft()
            missing -= 1
            position = self._position if chunk.step == SCATTER else self._positions[chunk.ring]
            place = cut.place(chunk, position, awaited[chunk.ring, chunk.step])
            if chunk.step == GATHER:
                if not transport.blank:
                    place[:] = chunk.payload
                transport.give_back(chunk.payload)
            elif (parts := own.take(chunk)) is not None:
                self._add(place, parts, add)
                for ring in range(self.replicas - 1):
                    transport.send_segment(ring, iteration, GATHER, chunk.segment_bytes, [(chunk.offset, place)])
            used[chunk.ring] += 1
            if used[chunk.ring] >= cut.batch or not missing:
                self._give_credit(used, None if not missing else chunk.ring)
        del self._arrived[iteration]
        self._unsent = set(range(self.replicas - 1))
        for ring in range(self.replicas - 1):
            transport.notify_when_segments_sent(ring)
        while self._unsent:
            await_event()

    def _add(self, total: memoryview, parts: Sequence[SegmentReceived], add: Add) -> None:
        for part in parts:
            if not self._transport.blank:
                add(total, part.payload)
            self._transport.give_back(part.payload)

    def _give_credit(self, used: list[int], only: int | None) -> None:
        """Report the chunks that have been used since the last report: of one ring, or of all."""
        for ring in range(len(used)) if only is None else (only,):
            if used[ring]:
                self._transport.give_segment_credit(used[ring], ring)
                used[ring] = 0


class _Cut:
    """The data of one replica, cut into segments and chunks, at all replicas alike."""

    def __init__(
        self, data: memoryview, element_bytes: int, replicas: int, connections: int, piece_bytes: int | None
    ) -> None:
        self._data = data
        self._segments = cut_segments(data.nbytes, element_bytes, replicas)
        self._chunk_bytes = ring_chunk_bytes(data.nbytes, element_bytes, replicas, connections, piece_bytes)
        counts = [-(-(end - start) // self._chunk_bytes) for start, end in self._segments]
        self.window = ring_window_chunks(counts, self._chunk_bytes)
        """The most chunks that may be at a replica or on their way there, of each other one."""
        self.batch = max(1, self.window // 4)

    def offsets(self, position: int) -> set[int]:
        """Return where the chunks of a segment begin."""
        start, end = self._segments[position]
        return set(range(0, end - start, self._chunk_bytes))

    def segment(self, position: int) -> tuple[int, list[tuple[int, memoryview]]]:
        """Return the size in bytes of a segment, and its chunks with their offsets."""
        start, end = self._segments[position]
        return end - start, [
            (at, self._data[start + at : min(end, start + at + self._chunk_bytes)])
            for at in sorted(self.offsets(position))
        ]

    def place(self, chunk: SegmentReceived, position: int, awaited: set[int]) -> memoryview:
        """Return the memory where a chunk of that segment belongs, which is then no longer among ``awaited``.

        Raise TransportError if the chunk does not fit or came before.
        """
        start, end = self._segments[position]
        length = min(self._chunk_bytes, end - start - chunk.offset)
        if chunk.segment_bytes != end - start or length != chunk.payload.nbytes or chunk.offset not in awaited:
            raise TransportError(
                f"{chunk.peer}: it sent a chunk of {chunk.payload.nbytes} bytes at {chunk.offset} of a "
                f"segment of {chunk.segment_bytes} bytes in step {chunk.step}, which does not fit or came before"
            )
        awaited.remove(chunk.offset)
        return self._data[start + chunk.offset : start + chunk.offset + length]


class _OwnSegment:
    """The chunks of the segment that a replica owns, as they come from ``others`` other replicas."""

    def __init__(self, cut: _Cut, position: int, others: int) -> None:
        self._held: dict[int, list[SegmentReceived]] = {offset: [] for offset in cut.offsets(position)}
        self._others = others

    def take(self, chunk: SegmentReceived) -> list[SegmentReceived] | None:
        """Hold a chunk. Return those of all others at its place, by rank, once all have come; else None."""
        held = self._held[chunk.offset]
        held.append(chunk)
        if len(held) < self._others:
            return None
        return sorted(self._held.pop(chunk.offset), key=lambda each: each.peer.rank)
