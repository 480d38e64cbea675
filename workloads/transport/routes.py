"""A rank's links, and the routing of each arriving chunk: to this rank, to its ring or star, or to be relayed."""

import socket
from collections.abc import Callable, Mapping, Sequence

from wanbed.workloads.message import MessageKind
from wanbed.workloads.transport.boundary import FRAME_KINDS, Boundary
from wanbed.workloads.transport.chunk_queues import ChunkQueue, CreditQueue
from wanbed.workloads.transport.event import Event
from wanbed.workloads.transport.exchange import Exchange
from wanbed.workloads.transport.frame import FrameError, FrameHeader, FrameKind, request
from wanbed.workloads.transport.link import Arrival, Link
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.ring_end import RingEnd
from wanbed.workloads.transport.star_end import StarEnd


class Routes:
    """The links of ``config`` over connected ``sockets``, by rank, with the boundaries, rings and star that use them.

    ``touched`` collects the links whose connections the I/O thread must check again. All calls come from the I/O
    thread, except the constructor's.
    """

    def __init__(
        self,
        config: LinksConfig,
        sockets: Mapping[int, Sequence[socket.socket]],
        pool: BufferPool,
        report: Callable[[Event], None],
        *,
        blank: bool,
    ) -> None:
        self.touched: dict[Link, None] = {}
        self._config, self._blank = config, blank
        peers = {peer.rank: peer for peer in config.peers}
        self.boundaries: dict[FrameKind, Boundary] = {}
        both = config.boundaries
        for boundary, outgoing in ((both.previous, MessageKind.GRADIENT), (both.following, MessageKind.ACTIVATION)):
            if boundary is not None:
                self.boundaries[FRAME_KINDS[outgoing]] = Boundary(
                    config, boundary, outgoing, peers[boundary.rank], pool=pool, report=report
                )
        self.exchanges = {
            each.rank: Exchange(config, each, peers[each.rank], pool=pool, report=report) for each in config.exchanges
        }
        of_replicas = len(config.rings.replicas)
        # A butterfly sums the chunks of several peers together, a chain all before any is broadcast, and Gloo announces
        # each: the rank passes on even blank ones.
        held = config.rings.butterfly or config.rings.chained or config.rings.announced
        self.rings = [
            RingEnd(config, ring, pool, report, blank=blank and not (held and ring < of_replicas))
            for ring in range(len(config.rings.every))
        ]
        self.star = None if config.star is None else StarEnd(config, config.star, peers, pool, report)
        self.links = {peer.rank: self._link(peer, sockets[peer.rank]) for peer in config.peers}
        for each in self.boundaries.values():
            each.use_links(self.links)
        for exchange in self.exchanges.values():
            exchange.use_links(self.links)
        for ring in self.rings:
            ring.use_links(self.links)
        if self.star is not None:
            self.star.use_links(self.links)
        self._own = config.pipeline

    def _link(self, peer: Peer, sockets: Sequence[socket.socket]) -> Link:
        queues: list[ChunkQueue] = []
        credit_queues: dict[FrameKind, CreditQueue] = {}
        for boundary in self.boundaries.values():
            queues += boundary.queues_to(peer.rank)
            credit_queues |= boundary.credit_queues_to(peer.rank)
        if peer.rank in self.exchanges:
            queues.append(self.exchanges[peer.rank].queue)
        for ring in self.rings:
            if peer.rank == ring.following:
                # Last: a stage that waits for a message idles, while the ring waits for its slowest replica anyway.
                queues.append(ring.queue)
                credit_queues[ring.kind] = ring.queue
        if self.star is not None and peer.rank in self.star.queues:
            queues.append(self.star.queues[peer.rank])
        return Link(
            peer,
            sockets,
            queues,
            window_bytes=self._config.window_bytes,
            blank=self._blank,
            credit_queues=credit_queues,
            place=self._place,
            asked=self._asked,
            touched=self.touched,
        )

    def _place(self, link: Link, header: FrameHeader) -> Arrival:
        if header.kind in {FrameKind.SEGMENT, FrameKind.NORM}:
            rings = [each for each in self.rings if each.kind is header.kind]
            if not rings:
                raise FrameError(f"it sent a {header.kind.name.lower()}, but there is no ring for it")
            # A rank that no ring has as previous is refused by any of them.
            ring = next((each for each in rings if each.previous == link.peer.rank), rings[0])
            return ring.place(link, header)
        if header.kind in {FrameKind.PART, FrameKind.STATE}:
            if self.star is None:
                raise FrameError("it sent a part of a sum, but there is no star")
            return self.star.place(link, header)
        if link.peer.rank in self.exchanges:
            return self.exchanges[link.peer.rank].place(header)
        mates_of = []
        for boundary in self.boundaries.values():
            if boundary.peer.rank == link.peer.rank:
                return boundary.place_from_across(header)
            if (owner := boundary.owner_of(link.peer.rank)) is not None:
                mates_of.append((boundary, owner))
        for boundary, owner in mates_of:
            if header.kind is boundary.incoming and header.owner == self._own:
                return boundary.place_from_mate(link.peer.rank, header)
            if header.kind is boundary.outgoing and header.owner == owner:
                if link.peer_ended_own:
                    raise FrameError("it sent a chunk of its own after its last one")
                return boundary.place_from_mate(link.peer.rank, header)
        raise FrameError(
            f"it sent a chunk of the {header.kind.name.lower()} of microbatch {header.number} of pipeline "
            f"{header.owner}, which does not go over this link"
        )

    def request(self, incoming: FrameKind, iteration: int, number: int) -> None:
        """Ask the peer across the boundary from which that kind of chunks comes for a message."""
        for boundary in self.boundaries.values():
            if boundary.incoming is incoming:
                boundary.link.request(request(incoming, self._own, iteration, number))

    def _asked(self, link: Link, header: FrameHeader) -> None:
        if link.peer.rank in self.exchanges:
            self.exchanges[link.peer.rank].asked(header)
            return
        boundary = self.boundaries.get(FrameKind(header.total_bytes))
        if boundary is None or boundary.peer.rank != link.peer.rank:
            raise FrameError(f"it asks for an {FrameKind(header.total_bytes).name.lower()} that it never gets")
        boundary.asked(header)

    def connect_again(self, rank: int, sockets: Sequence[socket.socket]) -> Link:
        """Return a new link to a rank of the star that has joined it, in place of the one whose connections ended."""
        self.touched.pop(self.links[rank], None)
        link = self.links[rank] = self._link(self.links[rank].peer, sockets)
        return link

    def open_ring(self, ring: RingEnd, window: int) -> None:
        """Let at most ``window`` chunks be at the next replica or on their way there."""
        ring.queue.resize(window)
        self.links[ring.following].touch()

    def end_own(self) -> None:
        """Announce to the cell mates that this rank will send no more chunks of its own."""
        for link in self.links.values():
            if any(link.peer.rank in boundary.mates for boundary in self.boundaries.values()):
                link.end_own()

    def end_what_is_through(self) -> None:
        """Shut down each link over which no chunk can be relayed any more. Call it after ``end_own``.

        The link across a boundary is shut down when all cell mates have sent their last own chunk. The link to a cell
        mate is shut down when the links of all boundaries shared with it have ended.
        """
        for link in self.links.values():
            shared = [boundary for boundary in self.boundaries.values() if link.peer.rank in boundary.mates]
            across = [boundary for boundary in self.boundaries.values() if boundary.peer.rank == link.peer.rank]
            awaited = [self.links[mate] for boundary in across for mate in boundary.mates]
            if all(boundary.link.ended for boundary in shared) and all(mate.peer_ended_own for mate in awaited):
                link.end()
