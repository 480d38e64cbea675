"""The I/O thread's part of a star: send parts or sums, receive them, and let go of a replica that is lost."""

from collections.abc import Callable, Mapping

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.boundary import Offering
from wanbed.workloads.transport.chunk_queues import ChunkQueue, QueuedChunk
from wanbed.workloads.transport.event import (
    Event,
    PartReceived,
    PartSent,
    Received,
    ReplicaJoins,
    ReplicaLost,
    Sent,
    StateReceived,
)
from wanbed.workloads.transport.frame import Cutting, FrameError, FrameHeader, FrameKind
from wanbed.workloads.transport.link import Arrival, Link
from wanbed.workloads.transport.links_config import LinksConfig, StarConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import Assembly, BufferPool


class StarEnd:
    """One rank in its star. A frame has the sum's number as its iteration, and in ``number`` how many parts it holds.

    ``queues`` lead to the other ranks, by rank. What arrives is reported as PartReceived, whoever sends it.
    """

    def __init__(
        self,
        config: LinksConfig,
        star: StarConfig,
        peers: Mapping[int, Peer],
        pool: BufferPool,
        report: Callable[[Event], None],
    ) -> None:
        self._owner = config.pipeline
        self._star = star
        self._pool = pool
        self._report = report
        self._gathers = config.rank == star.gatherer
        self._peers = {rank: peers[rank] for rank in star.peers_of(config.rank)}
        self.queues = {rank: ChunkQueue() for rank in self._peers}
        self._cuttings = {size: Cutting(size, 1, star.connections) for size in star.sizes_bytes}
        self._assemblies: dict[tuple[int, int], Assembly] = {}
        for rank in self._peers:
            self._assemble(rank)
        self._state: Assembly | None = None
        if star.joins:
            gatherer, cutting = self._peers[star.gatherer], self._cut_state(star.state_bytes)
            self._state = Assembly(gatherer, MessageKind.GRADIENT, cutting, pool, self._state_received)
        self._iterations = config.iterations
        self._links: Mapping[int, Link] = {}
        self._lost: set[int] = set()
        self.joining: set[int] = set()
        """The ranks that are connected again and wait for what they begin with."""

    def use_links(self, links: Mapping[int, Link]) -> None:
        """Set the links, by rank."""
        self._links = links

    def may_lose(self, rank: int) -> bool:
        """Return whether this rank goes on without that peer: it gathers from it, and does not wait for all."""
        return self._gathers and self._star.quorum is not None and rank in self._peers

    def is_lost(self, rank: int) -> bool:
        """Return whether the connections to a rank have ended, and it has not come back."""
        return rank in self._lost and rank not in self.joining

    def join(self, rank: int) -> None:
        """Handle that a lost rank is about to be connected again, with nothing of before: it gets no sum yet."""
        self.queues[rank] = ChunkQueue()
        self._assemble(rank)
        self.joining.add(rank)
        self._report(ReplicaJoins(self._peers[rank]))

    def send_state(self, rank: int, iteration: int, sums: int, payload: memoryview) -> None:
        """Queue what a rank that joins begins with, at ``iteration`` after ``sums`` sums. It gets all sums that follow.

        Nothing is queued if it has been lost again. The bytes must not change any more.
        """
        if rank in self.joining:
            self.joining.discard(rank)
            self._lost.discard(rank)
            self._queue(rank, FrameKind.STATE, (iteration, sums), payload, self._cut_state(payload.nbytes))

    def send_again(self, rank: int, number: int, parts: int, payload: memoryview) -> None:
        """Queue a sum for one rank that was not there when it was sent. The bytes must not change any more."""
        if rank not in self._lost:
            self._queue(rank, FrameKind.PART, (number, parts), payload, self._cuttings[payload.nbytes])

    def lose(self, rank: int, error: Exception) -> None:
        """Send nothing further to a peer whose connections are closed, and report that it is lost."""
        self._lost.add(rank)
        self.joining.discard(rank)
        while self.queues[rank].ready:
            self.queues[rank].pop()
        self._report(ReplicaLost(self._peers[rank], error))

    def send(self, number: int, parts: int, payload: memoryview) -> None:
        """Queue a part for the rank that gathers or, there, the sum for every other rank that is left.

        PartSent follows once the kernel has accepted all of a part. The bytes must not change before.
        """
        for rank in self._peers:
            if rank not in self._lost:
                self._queue(rank, FrameKind.PART, (number, parts), payload, self._cuttings[payload.nbytes])

    def _queue(
        self, rank: int, kind: FrameKind, numbers: tuple[int, int], payload: memoryview, cutting: Cutting
    ) -> None:
        iteration, number = numbers
        message = Message(MessageKind.GRADIENT, number)
        offering = Offering(self._peers[rank], iteration, message, payload.nbytes, cutting.chunks, self._sent)
        for index in range(cutting.chunks):
            offset, length = cutting.chunk(index)
            header = FrameHeader(kind, self._owner, iteration, number, payload.nbytes, offset, length)
            self.queues[rank].add(QueuedChunk(header, payload[offset : offset + length], offering))
        self._links[rank].touch()

    def place(self, link: Link, header: FrameHeader) -> Arrival:
        """Return the arrival for a chunk of a part, a sum or a state. Raise FrameError if no such chunk can exist."""
        star, rank = self._star, link.peer.rank
        if header.kind is FrameKind.STATE:
            return self._place_state(header)
        what = f"chunk at {header.offset} of a part of sum {header.iteration}"
        if rank not in self._peers:
            raise FrameError(f"it sent the {what}, but is not in the star")
        if header.iteration >= star.sums or not 1 <= header.number <= (1 if self._gathers else 2**16):
            raise FrameError(f"it sent the {what} as {header.number} parts, which does not exist")
        size_bytes = star.size_bytes(header.iteration)
        index = self._cuttings[size_bytes].index(header.offset, header.length)
        if header.total_bytes != size_bytes or index is None:
            raise FrameError(
                f"it sent the {what}, {header.length} of {header.total_bytes} bytes: expected are {size_bytes}, and "
                "it is not cut there"
            )
        return self._assemblies[rank, size_bytes].place(header, index)

    def _place_state(self, header: FrameHeader) -> Arrival:
        what = f"chunk at {header.offset} of what a replica begins with at iteration {header.iteration}"
        if self._state is None:
            raise FrameError(f"it sent the {what}, and this rank does not join")
        index = self._state.cutting.index(header.offset, header.length)
        in_training = header.iteration < self._iterations and header.number <= self._star.sums
        if header.total_bytes != self._star.state_bytes or index is None or not in_training:
            raise FrameError(f"it sent the {what}, of {header.total_bytes} bytes, which cannot be")
        return self._state.place(header, index)

    def _cut_state(self, size_bytes: int) -> Cutting:
        return Cutting(size_bytes, 1, self._star.connections)

    def _assemble(self, rank: int) -> None:
        for size, cutting in self._cuttings.items():
            assembly = Assembly(self._peers[rank], MessageKind.GRADIENT, cutting, self._pool, self._received)
            self._assemblies[rank, size] = assembly

    def _state_received(self, event: Event) -> None:
        assert isinstance(event, Received)
        self._report(StateReceived(event.peer, event.iteration, event.message.microbatch, event.payload))

    def _received(self, event: Event) -> None:
        assert isinstance(event, Received)
        times_ns = event.start_ns, event.end_ns
        parts = event.message.microbatch
        self._report(PartReceived(event.peer, event.iteration, parts, *times_ns, event.payload))

    def _sent(self, event: Event) -> None:
        assert isinstance(event, Sent)
        if not self._gathers:
            self._report(PartSent(event.iteration))
