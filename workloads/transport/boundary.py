"""One boundary of a rank's stage: its own transfers both ways and, with temporal sharing, those that it relays.

Temporal sharing stripes a transfer's chunks over the C pipelines of the DP-cell. With q = i mod C, chunk i of
pipeline p takes three legs:

    (p, s)  ->  cell mate (q, s)  ->  over q's own node pair to (q, s')  ->  owner's other end (p, s')

where s' is the next or the previous stage. The legs of different chunks overlap. A rank distinguishes the legs by
sender and owner. From a cell mate come the mate's own chunks, which this rank relays over the boundary, and this rank's
chunks, which are delivered. From across the boundary come this rank's chunks, which are delivered, and those of cell
mates, which are sent on to their owners.

No leg can block another. Chunks from cell mates are always read, because a cell mate sends only as many as it has
credit for, counted for each kind separately. Only reading from across the boundary pauses, until cell mates have taken
what was read before.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.chunk_queues import ChunkQueue, CreditQueue, QueuedChunk, RelayQueue, TurnQueue
from wanbed.workloads.transport.event import Event, Sent
from wanbed.workloads.transport.frame import Cutting, FrameError, FrameHeader, FrameKind
from wanbed.workloads.transport.link import Arrival, Link
from wanbed.workloads.transport.links_config import BoundaryConfig, LinksConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import Assembly, BufferPool
from wanbed.workloads.transport.requests import Requests

FRAME_KINDS = {MessageKind.ACTIVATION: FrameKind.ACTIVATION, MessageKind.GRADIENT: FrameKind.GRADIENT}

_MAX_GATHERING = 32
"""With so many chunks waiting for cell mates, a relay stops reading from across the boundary until half are sent."""


def relay_window(connections: int) -> int:
    """Return how many chunks of one cell mate and kind a relay holds at most.

    ``connections`` is the relay's number of connections across the boundary. Each may be sending one chunk while the
    next is on its way to the relay. More chunks would fill the network inside the datacenter and delay those whose
    turn it is.
    """
    return 2 * connections + 2


@dataclass(slots=True)
class Offering:
    """An outgoing message of this rank. ``unaccepted`` counts the chunks that the kernel has not accepted yet."""

    peer: Peer
    iteration: int
    message: Message
    transfer_bytes: int
    unaccepted: int
    report: Callable[[Event], None]
    start_ns: int = 0

    def begun(self) -> None:
        """Store when the first chunk was offered to the kernel."""
        if not self.start_ns:
            self.start_ns = time.monotonic_ns()

    def accepted(self) -> None:
        """Count a chunk that the kernel has accepted. Report Sent after the last one."""
        self.unaccepted -= 1
        if not self.unaccepted:
            times_ns = self.start_ns, time.monotonic_ns()
            self.report(Sent(self.peer, self.iteration, self.message, *times_ns, self.transfer_bytes))


@dataclass(slots=True)
class _Relay:
    """A chunk that is received only to be sent on; it is both the ``Arrival`` and the ``Source`` of the chunk."""

    header: FrameHeader
    buffer: memoryview
    payload: memoryview
    on_received: Callable[["_Relay"], None]
    on_sent: Callable[["_Relay"], None]

    def complete(self) -> None:
        self.on_received(self)

    def begun(self) -> None:
        pass

    def accepted(self) -> None:
        self.on_sent(self)


def _requested(header: FrameHeader) -> str:
    kind = FrameKind(header.total_bytes).name.lower()
    return f"the {kind} of microbatch {header.number} in iteration {header.iteration} of pipeline {header.owner}"


class Boundary:
    """One boundary of this rank's stage. Only ``check`` may be called outside of the I/O thread."""

    def __init__(
        self,
        links_config: LinksConfig,
        config: BoundaryConfig,
        outgoing: MessageKind,
        peer: Peer,
        *,
        pool: BufferPool,
        report: Callable[[Event], None],
    ) -> None:
        incoming = MessageKind.GRADIENT if outgoing is MessageKind.ACTIVATION else MessageKind.ACTIVATION
        mates = config.mates or (links_config.rank,)
        first = links_config.pipeline - mates.index(links_config.rank)
        self.peer = peer
        self.outgoing, self.incoming = FRAME_KINDS[outgoing], FRAME_KINDS[incoming]
        self.mates = tuple(rank for rank in mates if rank != links_config.rank)
        self._config, self._links_config = config, links_config
        self._microbatches = links_config.boundaries.microbatches
        self._pool, self._report = pool, report
        self._cutting = Cutting(config.transfer_bytes, len(mates), config.connections)
        self._assembly = Assembly(peer, incoming, self._cutting, pool, report)
        self._pipelines = {rank: first + index for index, rank in enumerate(mates)}
        self._ranks = {pipeline: rank for rank, pipeline in self._pipelines.items()}
        self._own = links_config.pipeline
        self._node_pair = mates.index(links_config.rank)
        self._node_pairs = {rank: index for index, rank in enumerate(mates)}
        own_chunks = len(self._cutting.chunks_of(self._node_pair))
        self._across = ChunkQueue()
        if config.outgoing_turns:
            self._across = TurnQueue(config.outgoing_turns, own_chunks, links_config.first_iteration)
        self._scatter = {rank: RelayQueue() for rank in self.mates}
        self._gather = {rank: ChunkQueue() for rank in self.mates}
        self._own_turns = [microbatch for pipeline, microbatch in config.outgoing_turns if pipeline == self._own]
        self._offered = 0
        self._early: dict[tuple[int, int], tuple[Message, memoryview]] = {}
        self._requests = Requests() if links_config.on_request else None
        self._window = relay_window(peer.connections)
        self._uncredited = dict.fromkeys(self.mates, 0)
        self._gathering = 0
        self._links: Mapping[int, Link] = {}

    def queues_to(self, rank: int) -> list[ChunkQueue]:
        """Return the queues of this boundary for the link to ``rank``, in order of precedence."""
        if rank == self.peer.rank:
            return [self._across]
        return [self._gather[rank], self._scatter[rank]] if rank in self._scatter else []

    def credit_queues_to(self, rank: int) -> dict[FrameKind, CreditQueue]:
        """Return the queues for which ``rank`` gives credit, by the kind of their chunks."""
        return {self.outgoing: self._scatter[rank]} if rank in self._scatter else {}

    def use_links(self, links: Mapping[int, Link]) -> None:
        """Set the links, by rank, and give the cell mates their first credit."""
        self._links = links
        for mate in self.mates:
            links[mate].give_credit(self.outgoing, self._window)

    @property
    def link(self) -> Link:
        """The link across the boundary."""
        return self._links[self.peer.rank]

    def check(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Raise ValueError if the transfer has the wrong size, or its microbatch or iteration does not exist."""
        if payload.nbytes != self._config.transfer_bytes:
            raise ValueError(f"{self.peer} expects {self._config.transfer_bytes} bytes, not {payload.nbytes}")
        if not (0 <= message.microbatch < self._microbatches and 0 <= iteration < self._links_config.iterations):
            raise ValueError(f"there is no microbatch {message.microbatch} in iteration {iteration}")

    def offer(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Send a transfer of this rank: at once, when it is asked for, or where the boundary has turns, in its turn."""
        if self._requests is not None:
            begin = partial(self._stripe, iteration, message, payload)
            self._requests.made((iteration, message.microbatch), begin)
            return
        if not self._own_turns:
            self._stripe(iteration, message, payload)
            return
        self._early[iteration, message.microbatch] = message, payload
        while (offer := self._early.pop(self._next_own(), None)) is not None:
            self._stripe(self._next_own()[0], *offer)
            self._offered += 1

    def asked(self, header: FrameHeader) -> None:
        """Handle the request of the rank across for a transfer. Raise FrameError if that is not expected."""
        if self._requests is None or header.owner != self._own:
            raise FrameError(f"it asks for {_requested(header)}, and nothing waits for that")
        if header.number >= self._microbatches or header.iteration >= self._links_config.iterations:
            raise FrameError(f"it asks for {_requested(header)}, which does not exist")
        if not self._requests.asked((header.iteration, header.number)):
            raise FrameError(f"it asks for {_requested(header)} twice")

    def _next_own(self) -> tuple[int, int]:
        iteration, position = divmod(self._offered, len(self._own_turns))
        return self._links_config.first_iteration + iteration, self._own_turns[position]

    def _stripe(self, iteration: int, message: Message, payload: memoryview) -> None:
        total, cutting = payload.nbytes, self._cutting
        offering = Offering(self.peer, iteration, message, total, cutting.chunks, self._report)
        for rank, node_pair in self._node_pairs.items():
            queue, link = (
                (self._scatter[rank], self._links[rank]) if rank in self._scatter else (self._across, self.link)
            )
            for index in cutting.chunks_of(node_pair):
                offset, length = cutting.chunk(index)
                header = FrameHeader(self.outgoing, self._own, iteration, message.microbatch, total, offset, length)
                queue.add(QueuedChunk(header, payload[offset : offset + length], offering))
            link.touch()

    def place_from_across(self, header: FrameHeader) -> Arrival:
        """Return the arrival for a chunk from across the boundary. Raise FrameError if the chunk is not expected."""
        index = self._index(header, self.incoming, self._node_pair)
        if header.owner == self._own:
            return self._assembly.place(header, index)
        if header.owner not in self._ranks:
            raise FrameError(
                f"it sent the {self._name(header)} of pipeline {header.owner}, which is not in this DP-cell"
            )
        return self._relay(header, self._hand_over, self._handed_over)

    def place_from_mate(self, rank: int, header: FrameHeader) -> Arrival:
        """Return the arrival for a chunk from a cell mate. Raise FrameError if the chunk is not expected."""
        if header.owner == self._own:
            return self._assembly.place(header, self._index(header, self.incoming, self._node_pairs[rank]))
        self._index(header, self.outgoing, self._node_pair)
        return self._relay(header, self._send_across, self._sent_across)

    def owner_of(self, rank: int) -> int | None:
        """Return the pipeline of a cell mate, None if ``rank`` is not one at this boundary."""
        return self._pipelines[rank] if rank in self._scatter else None

    def _index(self, header: FrameHeader, expected: FrameKind, node_pair: int) -> int:
        what = self._name(header)
        if header.kind is not expected:
            raise FrameError(f"it sent the {what}, expected are {expected.name.lower()}s")
        if header.total_bytes != self._config.transfer_bytes:
            raise FrameError(
                f"it sent the {what} of {header.total_bytes} bytes, expected are {self._config.transfer_bytes}"
            )
        if header.number >= self._microbatches or header.iteration >= self._links_config.iterations:
            raise FrameError(f"it sent the {what} in iteration {header.iteration}, which does not exist")
        index = self._cutting.index(header.offset, header.length)
        if index is None:
            raise FrameError(f"it sent the {what}, {header.length} bytes long: the transfer is not cut there")
        if index % self._cutting.node_pairs != node_pair:
            raise FrameError(f"it sent the {what}, which goes over another node pair")
        return index

    def _name(self, header: FrameHeader) -> str:
        return f"chunk at {header.offset} of the {header.kind.name.lower()} of microbatch {header.number}"

    def _relay(
        self, header: FrameHeader, on_received: Callable[[_Relay], None], on_sent: Callable[[_Relay], None]
    ) -> _Relay:
        # Chunks differ by one byte. Buffers of the larger size fit all of them, so that they can be used again.
        buffer = self._pool.take(self._cutting.largest_bytes)
        return _Relay(header, buffer, buffer[: header.length], on_received, on_sent)

    def _send_across(self, relay: _Relay) -> None:
        self._across.add(QueuedChunk(relay.header, relay.payload, relay))
        self.link.touch()

    def _sent_across(self, relay: _Relay) -> None:
        self._pool.give_back(relay.buffer)
        mate = self._ranks[relay.header.owner]
        self._uncredited[mate] += 1
        if self._uncredited[mate] == self._window // 4:
            self._uncredited[mate] = 0
            self._links[mate].give_credit(self.outgoing, self._window // 4)

    def _hand_over(self, relay: _Relay) -> None:
        mate = self._ranks[relay.header.owner]
        self._gather[mate].add(QueuedChunk(relay.header, relay.payload, relay))
        self._links[mate].touch()
        # A chunk that is still arriving does not count: were all of them such, nothing would end the pause.
        self._gathering += 1
        self.link.paused = self.link.paused or self._gathering >= _MAX_GATHERING

    def _handed_over(self, relay: _Relay) -> None:
        self._pool.give_back(relay.buffer)
        self._gathering -= 1
        if self._gathering <= _MAX_GATHERING // 2:
            self.link.paused = False
