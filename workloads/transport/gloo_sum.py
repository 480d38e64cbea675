"""All-reduce as Gloo does it: round the ring in segments, each sent once its receiver has announced that it waits.

With P replicas the data is cut into P chunks, and each of these into two segments or more, of 1 MiB at most; the last
ones are shorter, or empty. The ring's reduce-scatter sends the segments of all chunks but one in order, and then its
all-gather does. A replica sends two segments at once and waits for two: before it goes on to a further one, the one
two before it has to have come and been added, and the kernel has to have accepted the one that was sent with it.
Then the replica announces to the previous one that it waits for the further one, and sends its own as soon as the next
replica has announced the same. So a replica gets two segments in a round trip and the time that one takes, or one in
the time that it takes, whichever is longer. The all-gather begins when all of the reduce-scatter has come and been
accepted.

Source: Gloo, ``gloo/allreduce.cc`` (ring) and ``gloo/transport/tcp/pair.cc``. Gloo goes round the ring the other way.
What this project calls a segment, the part of a replica, is Gloo's chunk, and the other way round.
"""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from wanbed.workloads.transport.all_reduce import Add
from wanbed.workloads.transport.event import SegmentReceived, SegmentsSent
from wanbed.workloads.transport.links_config import ANNOUNCED_AT_ONCE, LinksConfig
from wanbed.workloads.transport.ring_round import RingRound, SegmentCut, count_elements, ring_steps
from wanbed.workloads.transport.striped_transport import StripedTransport

_RING = 0

_MOST_BYTES = 1024 * 1024
_LEAST_CHUNKS = 2


def gloo_cut(total_bytes: int, element_bytes: int, replicas: int) -> SegmentCut:
    """Cut data as Gloo does: as many chunks for each replica, all of one size but for the last ones with data.

    Raise ValueError if the data is not a whole number of elements.
    """
    elements = count_elements(total_bytes, element_bytes)
    chunks = max(-(-total_bytes // (_MOST_BYTES // element_bytes * element_bytes * replicas)), _LEAST_CHUNKS)
    chunk_bytes = max(-(-elements // (chunks * replicas)), 1) * element_bytes
    ends = [min(chunks * chunk_bytes * number, total_bytes) for number in range(replicas + 1)]
    return SegmentCut(tuple(pairwise(ends)), chunk_bytes)


def gloo_ns(total_bytes: int, replicas: int, bits_per_s: float, rtt_ns: int) -> float:
    """Return how long the all-reduce takes over equal lines."""
    cut = gloo_cut(total_bytes, 1, replicas)
    chunks, chunk_ns = (replicas - 1) * max(cut.chunks(0), _LEAST_CHUNKS), cut.chunk_bytes * 8e9 / bits_per_s
    return 2 * max(rtt_ns + chunks * chunk_ns, chunks / 2 * (rtt_ns + chunk_ns) + chunk_ns)


class Turn(NamedTuple):
    """What a replica sends and receives at once: chunks of that step, at the same offset; 0 bytes are no chunk."""

    step: int
    offset: int
    sends_bytes: int
    receives_bytes: int


def gloo_turns(cut: SegmentCut, position: int) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    """Return the turns of the reduce-scatter and those of the all-gather, in order, of the replica at ``position``."""
    replicas = len(cut.segments)
    steps = ring_steps(position, replicas)
    # Of fewer elements than there are chunks even the first segment has a single one.
    offsets = [number * cut.chunk_bytes for number in range(max(cut.chunks(0), _LEAST_CHUNKS))]

    def size_bytes(segment: int, offset: int) -> int:
        start, end = cut.segments[segment]
        return min(cut.chunk_bytes, max(end - start - offset, 0))

    def turns(first: int) -> tuple[Turn, ...]:
        return tuple(
            Turn(step, offset, size_bytes(steps[step].sends, offset), size_bytes(steps[step].receives, offset))
            for step in range(first, first + replicas - 1)
            for offset in offsets
        )

    return turns(0), turns(replicas - 1)


class GlooAllReduce:
    """One rank's side of the all-reduce, in place of ``RingAllReduce``, and called as that is.

    Raises ValueError if the configuration has no chunks that are announced.
    """

    def __init__(self, config: LinksConfig, transport: StripedTransport) -> None:
        if not config.rings.announced or not config.rings.replicas:
            raise ValueError("the configuration has no ring of announced chunks")
        self._transport, self._ring = transport, config.rings.replicas[_RING]
        self._position = self._ring.ranks.index(config.rank)
        self.replicas = len(self._ring.ranks)
        """The number of replicas."""
        self._arrived: deque[SegmentReceived] = deque()
        self._sent = False

    def handle(self, event: SegmentReceived | SegmentsSent) -> None:
        """Handle an event from the rank's queue."""
        if isinstance(event, SegmentsSent):
            self._sent = True
        else:
            self._arrived.append(event)

    def run(
        self, iteration: int, data: memoryview, element_bytes: int, add: Add, await_event: Callable[[], None]
    ) -> None:
        """Sum ``data`` over all replicas, in place, as ``RingAllReduce.run`` says."""
        cut = gloo_cut(data.nbytes, element_bytes, self.replicas)
        whole = RingRound(iteration, data, element_bytes, self._position, self.replicas, cut=cut)
        for turns in gloo_turns(cut, self._position):
            came: set[tuple[int, int]] = set()
            for number in range(len(turns) + ANNOUNCED_AT_ONCE):
                if number >= ANNOUNCED_AT_ONCE:
                    before, *others = turns[number - ANNOUNCED_AT_ONCE : number]
                    while before.receives_bytes and (before.step, before.offset) not in came:
                        came.add(self._take_next(whole, add, await_event))
                    if before.sends_bytes:
                        self._await_sent(sum(other.sends_bytes > 0 for other in others), await_event)
                if number < len(turns):
                    self._begin(whole, turns[number])

    def _begin(self, whole: RingRound, turn: Turn) -> None:
        if turn.receives_bytes:
            self._transport.give_segment_credit(1, _RING)
        if turn.sends_bytes:
            segment_bytes, chunk = whole.chunk(turn.step, turn.offset)
            self._transport.send_segment(_RING, whole.iteration, turn.step, segment_bytes, [(turn.offset, chunk)])

    def _take_next(self, whole: RingRound, add: Add, await_event: Callable[[], None]) -> tuple[int, int]:
        while not self._arrived:
            await_event()
        chunk = self._arrived.popleft()
        place, adds = whole.take(chunk)
        if not self._transport.blank:
            if adds:
                add(place, chunk.payload)
            else:
                place[:] = chunk.payload
        self._transport.give_back(chunk.payload)
        return chunk.step, chunk.offset

    def _await_sent(self, most_left: int, await_event: Callable[[], None]) -> None:
        self._sent = False
        self._transport.notify_when_segments_sent(_RING, most_left)
        while not self._sent:
            await_event()
