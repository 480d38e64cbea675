"""One boundary of a rank's stage: its own transfers both ways, and, where they are shared, those it relays.

Temporal sharing deals a transfer's chunks over the C pipelines of the cell. Pipeline p's chunk i goes, q = i mod C,

    (p, s)  ->  mate (q, s)  ->  over q's own node pair to (q, s')  ->  owner's other end (p, s')

where s' is the next or the previous stage. The legs of different chunks overlap. A rank tells the legs apart by sender
and owner: from a mate, the mate's own chunks are to be relayed over the boundary and this rank's are delivered; from
across the boundary, this rank's chunks are delivered and a mate's are handed to it.

No leg can block another: chunks from mates are always read, because a mate sends only as many as it has credit for,
each kind by itself. Only reading from across the boundary pauses, while mates take what was read before.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workloads.message import Message, MessageKind
from workloads.transport.chunk_queues import Chunk, ChunkQueue, CreditQueue, RelayQueue, TurnQueue
from workloads.transport.event import Event, Sent
from workloads.transport.frames.assembly import Assembly
from workloads.transport.frames.buffer_pool import BufferPool
from workloads.transport.frames.cutting import Cutting
from workloads.transport.frames.frame import FrameError, FrameHeader, FrameKind
from workloads.transport.link import Arrival, Link
from workloads.transport.links_config import BoundaryConfig, LinksConfig
from workloads.transport.peer import Peer

FRAME_KINDS = {MessageKind.ACTIVATION: FrameKind.ACTIVATION, MessageKind.GRADIENT: FrameKind.GRADIENT}

_GATHER_MOST = 32
"""Chunks for mates at which a relay stops to read from across the boundary until half of them have gone."""


def relay_window(connections: int) -> int:
    """Return how many chunks of one mate and kind a relay with that many connections across the boundary holds.

    Each connection may have begun one while the next is on its way. More would crowd the network inside the
    datacenter and delay the chunks whose turn it is.
    """
    return 2 * connections + 2


@dataclass(slots=True)
class _Offering:
    """A transfer of this rank's own on its way out."""

    peer: Peer
    iteration: int
    message: Message
    transfer_bytes: int
    unaccepted: int
    report: Callable[[Event], None]
    start_ns: int = 0

    def begun(self) -> None:
        if not self.start_ns:
            self.start_ns = time.monotonic_ns()

    def accepted(self) -> None:
        self.unaccepted -= 1
        if not self.unaccepted:
            times_ns = self.start_ns, time.monotonic_ns()
            self.report(Sent(self.peer, self.iteration, self.message, *times_ns, self.transfer_bytes))


@dataclass(slots=True)
class _Relay:
    """A chunk that arrives only to be sent again; it is its own arrival and its own source."""

    header: FrameHeader
    buffer: memoryview
    payload: memoryview
    whole: Callable[["_Relay"], None]
    gone: Callable[["_Relay"], None]

    def complete(self) -> None:
        self.whole(self)

    def begun(self) -> None:
        pass

    def accepted(self) -> None:
        self.gone(self)


class Boundary:
    """One boundary. The I/O thread makes all calls but ``check``."""

    def __init__(
        self,
        links_config: LinksConfig,
        plan: BoundaryConfig,
        outgoing: MessageKind,
        peer: Peer,
        *,
        pool: BufferPool,
        report: Callable[[Event], None],
    ) -> None:
        incoming = MessageKind.GRADIENT if outgoing is MessageKind.ACTIVATION else MessageKind.ACTIVATION
        mates = plan.mates or (links_config.rank,)
        first = links_config.pipeline - mates.index(links_config.rank)
        self.peer = peer
        self.outgoing, self.incoming = FRAME_KINDS[outgoing], FRAME_KINDS[incoming]
        self.mates = tuple(rank for rank in mates if rank != links_config.rank)
        self._plan, self._links_config = plan, links_config
        self._pool, self._report = pool, report
        self._cutting = Cutting(plan.transfer_bytes, len(mates), plan.connections)
        self._assembly = Assembly(peer, incoming, self._cutting, pool, report)
        self._pipelines = {rank: first + index for index, rank in enumerate(mates)}
        self._ranks = {pipeline: rank for rank, pipeline in self._pipelines.items()}
        self._own = links_config.pipeline
        self._share = mates.index(links_config.rank)
        self._shares = {rank: index for index, rank in enumerate(mates)}
        share_chunks = len(self._cutting.share(self._share))
        self._across = TurnQueue(plan.outgoing_turns, share_chunks) if plan.outgoing_turns else ChunkQueue()
        self._scatter = {rank: RelayQueue() for rank in self.mates}
        self._gather = {rank: ChunkQueue() for rank in self.mates}
        self._own_turns = [microbatch for pipeline, microbatch in plan.outgoing_turns if pipeline == self._own]
        self._offered = 0
        self._early: dict[tuple[int, int], tuple[Message, memoryview]] = {}
        self._window = relay_window(peer.connections)
        self._done_with = dict.fromkeys(self.mates, 0)
        self._gathering = 0
        self._links: Mapping[int, Link] = {}

    def queues_to(self, rank: int) -> list[ChunkQueue]:
        """Return the lanes of this boundary that go over the link to ``rank``, those with precedence first."""
        if rank == self.peer.rank:
            return [self._across]
        return [self._gather[rank], self._scatter[rank]] if rank in self._scatter else []

    def credit_queues_to(self, rank: int) -> dict[FrameKind, CreditQueue]:
        """Return the lanes to ``rank`` that it gives credit for, by the kind of their chunks."""
        return {self.outgoing: self._scatter[rank]} if rank in self._scatter else {}

    def use_links(self, links: Mapping[int, Link]) -> None:
        """Take the links, by rank, that the lanes belong to, and let the mates begin."""
        self._links = links
        for mate in self.mates:
            links[mate].give_credit(self.outgoing, self._window)

    @property
    def link(self) -> Link:
        """The link across the boundary."""
        return self._links[self.peer.rank]

    def check(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Raise ValueError if that transfer cannot be offered here."""
        if payload.nbytes != self._plan.transfer_bytes:
            raise ValueError(f"{self.peer} expects {self._plan.transfer_bytes} bytes, given are {payload.nbytes}")
        if not (
            0 <= message.microbatch < self._links_config.microbatches and 0 <= iteration < self._links_config.iterations
        ):
            raise ValueError(f"there is no microbatch {message.microbatch} in iteration {iteration}")

    def offer(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Send a transfer of this rank's own, in its turn where there are turns."""
        if not self._own_turns:
            self._stripe(iteration, message, payload)
            return
        self._early[iteration, message.microbatch] = message, payload
        while (offer := self._early.pop(self._next_own(), None)) is not None:
            self._stripe(self._next_own()[0], *offer)
            self._offered += 1

    def _next_own(self) -> tuple[int, int]:
        iteration, position = divmod(self._offered, len(self._own_turns))
        return iteration, self._own_turns[position]

    def _stripe(self, iteration: int, message: Message, payload: memoryview) -> None:
        total, cutting = payload.nbytes, self._cutting
        offering = _Offering(self.peer, iteration, message, total, cutting.chunks, self._report)
        for rank, share in self._shares.items():
            queue, link = (
                (self._scatter[rank], self._links[rank]) if rank in self._scatter else (self._across, self.link)
            )
            for index in cutting.share(share):
                offset, length = cutting.chunk(index)
                header = FrameHeader(self.outgoing, self._own, iteration, message.microbatch, total, offset, length)
                queue.add(Chunk(header, payload[offset : offset + length], offering))
            link.touch()

    def place_from_across(self, header: FrameHeader) -> Arrival:
        """Return the arrival for a chunk from the neighbour. Raises FrameError if it may not come now."""
        index = self._index(header, self.incoming, self._share)
        if header.owner == self._own:
            return self._assembly.place(header, index)
        if header.owner not in self._ranks:
            raise FrameError(f"it sent the {self._name(header)} of pipeline {header.owner}, which is not of this cell")
        self._gathering += 1
        self.link.paused = self.link.paused or self._gathering >= _GATHER_MOST
        return self._relay(header, self._hand_over, self._handed_over)

    def place_from_mate(self, rank: int, header: FrameHeader) -> Arrival:
        """Return the arrival for a chunk from a mate. Raises FrameError if it may not come now."""
        if header.owner == self._own:
            return self._assembly.place(header, self._index(header, self.incoming, self._shares[rank]))
        self._index(header, self.outgoing, self._share)
        return self._relay(header, self._send_across, self._sent_across)

    def owner_of(self, rank: int) -> int | None:
        """Return the pipeline of a mate, None if that rank is no mate here."""
        return self._pipelines[rank] if rank in self._scatter else None

    def _index(self, header: FrameHeader, expected: FrameKind, share: int) -> int:
        what = self._name(header)
        if header.kind is not expected:
            raise FrameError(f"it sent the {what}, expected are {expected.name.lower()}s")
        if header.total_bytes != self._plan.transfer_bytes:
            raise FrameError(
                f"it sent the {what} of {header.total_bytes} bytes, expected are {self._plan.transfer_bytes}"
            )
        if header.number >= self._links_config.microbatches or header.iteration >= self._links_config.iterations:
            raise FrameError(f"it sent the {what} in iteration {header.iteration}, which there is not")
        index = self._cutting.index(header.offset, header.length)
        if index is None:
            raise FrameError(f"it sent the {what}, {header.length} bytes long: the transfer is not cut there")
        if index % self._cutting.shares != share:
            raise FrameError(f"it sent the {what}, which goes over another node pair")
        return index

    def _name(self, header: FrameHeader) -> str:
        return f"chunk at {header.offset} of the {header.kind.name.lower()} of microbatch {header.number}"

    def _relay(self, header: FrameHeader, whole: Callable[[_Relay], None], gone: Callable[[_Relay], None]) -> _Relay:
        # Chunks differ by a byte: buffers of the larger size fit both, so that one pool serves.
        buffer = self._pool.take(self._cutting.largest_bytes)
        return _Relay(header, buffer, buffer[: header.length], whole, gone)

    def _send_across(self, relay: _Relay) -> None:
        self._across.add(Chunk(relay.header, relay.payload, relay))
        self.link.touch()

    def _sent_across(self, relay: _Relay) -> None:
        self._pool.give_back(relay.buffer)
        mate = self._ranks[relay.header.owner]
        self._done_with[mate] += 1
        if self._done_with[mate] == self._window // 4:
            self._done_with[mate] = 0
            self._links[mate].give_credit(self.outgoing, self._window // 4)

    def _hand_over(self, relay: _Relay) -> None:
        mate = self._ranks[relay.header.owner]
        self._gather[mate].add(Chunk(relay.header, relay.payload, relay))
        self._links[mate].touch()

    def _handed_over(self, relay: _Relay) -> None:
        self._pool.give_back(relay.buffer)
        self._gathering -= 1
        if self._gathering <= _GATHER_MOST // 2:
            self.link.paused = False
