"""The I/O thread's part of the ring all-reduce: send chunks to the next replica, receive those of the previous one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wanbed.workloads.transport.chunk_queues import CreditQueue, QueuedChunk
from wanbed.workloads.transport.event import Event, SegmentReceived, SegmentsSent
from wanbed.workloads.transport.frame import FrameError, FrameHeader, FrameKind
from wanbed.workloads.transport.link import Link
from wanbed.workloads.transport.links_config import ANNOUNCED_AT_ONCE, LinksConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.ring_round import RingRound


@dataclass(slots=True)
class _Arrival:
    peer: Peer
    header: FrameHeader
    payload: memoryview
    ring: int
    arrived: Callable[[SegmentReceived], None]

    def complete(self) -> None:
        header = self.header
        segment = header.total_bytes, header.offset, self.payload
        self.arrived(SegmentReceived(self.peer, header.iteration, header.number, *segment, self.ring))


class RingEnd:
    """One rank in the ring ``config.rings.every[ring]``, between its ``previous`` and its ``following`` rank.

    ``kind`` is that of its chunks, which those of the ring of the gradient norm have to themselves.
    ``queue`` leads to the next replica; it is closed until ``resize`` sets its window, and where chunks are announced,
    until the next replica has announced one. Arriving chunks are reported as SegmentReceived. ``blank`` chunks are
    passed on instead, once ``pass_on`` has set the round.
    """

    def __init__(
        self,
        config: LinksConfig,
        ring: int,
        pool: BufferPool,
        report: Callable[[Event], None],
        *,
        blank: bool,
    ) -> None:
        rings, of_norm = config.rings, ring == len(config.rings.replicas)
        own = rings.every[ring]
        self.previous, self.following = own.neighbours(config.rank)
        self.kind = FrameKind.NORM if of_norm else FrameKind.SEGMENT
        self.queue = CreditQueue(0 if of_norm or not rings.announced else ANNOUNCED_AT_ONCE)
        self._config, self._ring = config, ring
        self._steps = 2 * (len(own.ranks) - 1)
        self._all_reduces = config.iterations if of_norm else rings.all_reduces(config.iterations)
        self._pool = pool
        self._report = report
        self._unaccepted = 0
        self._most_left: int | None = None
        self._arrived: Callable[[SegmentReceived], None] = self._pass if blank else report
        self._round: RingRound | None = None
        self._early: list[SegmentReceived] = []
        self._links: Mapping[int, Link] = {}

    def use_links(self, links: Mapping[int, Link]) -> None:
        """Set the links, by rank. Those to both ring neighbours must be among them."""
        self._links = links

    def pass_on(self, ring: RingRound) -> None:
        """Pass on the blank chunks of that round as they arrive. Report SegmentsSent once all are passed on."""
        self._round, early, self._early = ring, self._early, []
        if ring.complete:
            self._end_round()
        for chunk in early:
            self._pass(chunk)

    def _pass(self, chunk: SegmentReceived) -> None:
        ring = self._round
        if ring is None or not ring.awaits(chunk):
            self._early.append(chunk)
            return
        place, _ = ring.take(chunk)
        if ring.passes_on(chunk):
            self.send(chunk.iteration, chunk.step + 1, chunk.segment_bytes, chunk.offset, place)
            self._links[self.following].touch()
        self._pool.give_back(chunk.payload)
        if used := ring.used():
            self._links[self.previous].give_credit(self.kind, used)
        if ring.complete:
            self._end_round()

    def _end_round(self) -> None:
        self._round = None
        self.notify_when_sent()

    def send(self, iteration: int, step: int, segment_bytes: int, offset: int, payload: memoryview) -> None:
        """Queue one chunk of a segment."""
        header = FrameHeader(self.kind, self._config.pipeline, iteration, step, segment_bytes, offset, payload.nbytes)
        self.queue.add(QueuedChunk(header, payload, self))
        self._unaccepted += 1

    def notify_when_sent(self, most_left: int = 0) -> None:
        """Report SegmentsSent once the kernel has accepted all that is queued but ``most_left`` chunks."""
        self._most_left = most_left
        self._report_if_sent()

    def begun(self) -> None:
        """Do nothing when a chunk is about to be sent."""

    def accepted(self) -> None:
        """Count a chunk that the kernel has accepted."""
        self._unaccepted -= 1
        self._report_if_sent()

    def _report_if_sent(self) -> None:
        if self._most_left is not None and self._unaccepted <= self._most_left:
            self._most_left = None
            self._report(SegmentsSent(self._ring))

    def place(self, link: Link, header: FrameHeader) -> _Arrival:
        """Return the arrival for a chunk from the previous replica. Raise FrameError if no such chunk can exist."""
        what = f"chunk at {header.offset} of the segment of ring step {header.number}"
        if link.peer.rank != self.previous:
            raise FrameError(f"it sent the {what}, but is not the previous rank in the ring")
        if header.number >= self._steps or header.iteration >= self._all_reduces:
            raise FrameError(f"it sent the {what} in all-reduce {header.iteration}, which does not exist")
        return _Arrival(link.peer, header, self._pool.take(header.length), self._ring, self._arrived)
