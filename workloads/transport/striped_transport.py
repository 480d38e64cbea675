"""Move a rank's messages, and the chunks it relays for cell mates, in one I/O thread while the main thread computes."""

import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from wanbed.workloads.message import Message
from wanbed.workloads.transport.boundary import FRAME_KINDS
from wanbed.workloads.transport.event import Closed, Event, Failed
from wanbed.workloads.transport.frame import FrameError
from wanbed.workloads.transport.link import Connection, Link
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.ring_end import RingEnd
from wanbed.workloads.transport.ring_round import RingRound
from wanbed.workloads.transport.routes import Routes
from wanbed.workloads.transport.socket_options import deliver_after_close
from wanbed.workloads.transport.star_end import StarEnd
from wanbed.workloads.transport.warm_connections import WarmConnections


class StripedTransport:
    """One I/O thread over all links of a rank. Other threads call the methods.

    ``sockets`` are connected, by rank, as ``Rendezvous.rendezvous`` returns them. The I/O thread calls ``report`` with
    each event; it must not block. ``Failed`` is the last event: every connection is then closed, so that the peers
    notice at once. With ``blank``, payloads have no contents: zeros are sent, received bytes are discarded, and the
    memory of payloads is never touched.
    """

    def __init__(
        self,
        config: LinksConfig,
        sockets: Mapping[int, Sequence[socket.socket]],
        pool: BufferPool,
        report: Callable[[Event], None],
        *,
        blank: bool = False,
    ) -> None:
        self.blank = blank
        self.pool = pool
        self._report = report
        self._routes = Routes(config, sockets, pool, report, blank=blank)
        self._requests: deque[Callable[[], object]] = deque()
        self._connections: dict[int, tuple[Link, Connection]] = {}
        self._interest: dict[Connection, int] = {}
        self._paused: set[Link] = set()
        self._warm = WarmConnections(config.peers)
        self._epoll = select.epoll()
        self._closing = False
        self._woken = False
        self._error: Exception | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Closed with this object, not with the thread: a late request must not write to a descriptor that was reused.
        weakref.finalize(self, os.close, self._wake)
        self._thread = threading.Thread(target=self._run, name="transport", daemon=True)

    def start(self) -> None:
        """Start the I/O thread."""
        self._thread.start()

    def send(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Queue an activation for the next stage or a gradient for the previous one.

        The payload must not change until the Sent event. Raise ValueError if the configuration has no such transfer.
        """
        boundary = self._routes.boundaries.get(FRAME_KINDS[message.kind])
        if boundary is None:
            raise ValueError(f"there is no stage to send an {message.kind} to")
        boundary.check(iteration, message, payload)
        self._request(lambda: boundary.offer(iteration, message, payload))

    def request(self, iteration: int, message: Message) -> None:
        """Ask the neighbour stage for a message that this rank waits for. Its configuration says ``on_request``."""
        kind = FRAME_KINDS[message.kind]
        self._request(lambda: self._routes.request(kind, iteration, message.microbatch))

    def request_message(self, rank: int, iteration: int, number: int) -> None:
        """Ask the peer ``rank`` for the message of that number that this rank waits for."""
        exchange = self._routes.exchanges[rank]
        self._request(lambda: exchange.request(iteration, number))

    def send_message(self, rank: int, iteration: int, number: int, payload: memoryview) -> None:
        """Queue message ``number`` of a trace for the peer ``rank``.

        The payload must not change until the Sent event. Raise ValueError if the configuration has no such message.
        """
        exchange = self._routes.exchanges.get(rank)
        if exchange is None:
            raise ValueError(f"there are no messages to rank {rank}")
        exchange.check(iteration, number, payload)
        self._request(lambda: exchange.offer(iteration, number, payload))

    def take(self, size_bytes: int) -> memoryview:
        """Return a buffer like that of a received message, for one that this rank hands over to itself."""
        return self.pool.take(size_bytes)

    def give_back(self, payload: memoryview) -> None:
        """Return the payload of a Received or SegmentReceived event to the pool, for the next message."""
        self.pool.give_back(payload)

    def open_ring(self, window: int, ring: int) -> None:
        """Let at most ``window`` chunks of a ring's segments be at the next replica or on their way there."""
        end = self._ring(ring)
        self._request(lambda: self._routes.open_ring(end, window))

    def send_segment(
        self, ring: int, iteration: int, step: int, segment_bytes: int, chunks: Sequence[tuple[int, memoryview]]
    ) -> None:
        """Queue chunks, each with its offset in the segment, for the next replica. Their bytes must not change."""
        end = self._ring(ring)

        def queue() -> None:
            for offset, payload in chunks:
                end.send(iteration, step, segment_bytes, offset, payload)
            self._routes.links[end.following].touch()

        self._request(queue)

    def give_segment_credit(self, chunks: int, ring: int) -> None:
        """Let the previous replica send ``chunks`` more chunks: as many have been used, or are awaited."""
        end = self._ring(ring)
        self._request(lambda: self._routes.links[end.previous].give_credit(end.kind, chunks))

    def pass_segments_on(self, ring: RingRound) -> None:
        """Pass on the blank chunks of that round as they arrive.

        A SegmentsSent event follows once all have arrived and the kernel has accepted those passed on.
        """
        end = self._ring(ring.ring)
        self._request(lambda: end.pass_on(ring))

    def notify_when_segments_sent(self, ring: int, most_left: int = 0) -> None:
        """Report SegmentsSent once the kernel has accepted what ``send_segment`` queued, but ``most_left`` chunks."""
        end = self._ring(ring)
        self._request(lambda: end.notify_when_sent(most_left))

    def send_part(self, number: int, parts: int, payload: memoryview) -> None:
        """Queue a part of a sum over the star for the rank that gathers; there, the sum of ``parts`` for all others.

        The payload must not change any more, but a part after the PartSent event. Raise ValueError without a star.
        """
        star = self._star
        self._request(lambda: star.send(number, parts, payload))

    def send_state(self, rank: int, iteration: int, sums: int, payload: memoryview) -> None:
        """Queue what a replica of the star begins with that has connected again, before any sum for it.

        It begins at ``iteration``, after ``sums`` sums. The payload must not change any more. Raise ValueError without
        a star.
        """
        star = self._star
        self._request(lambda: star.send_state(rank, iteration, sums, payload))

    def send_sum_again(self, rank: int, number: int, parts: int, payload: memoryview) -> None:
        """Queue a sum for one replica of the star that was not there when it was sent to all others.

        Raise ValueError without a star.
        """
        star = self._star
        self._request(lambda: star.send_again(rank, number, parts, payload))

    def connect_again(self, rank: int, sockets: Sequence[socket.socket]) -> None:
        """Take over connected sockets to a replica of the star that has been started again.

        ReplicaJoins follows. What is left of the connections before is closed. Once ``close`` has been called, the new
        ones are closed instead. Raise ValueError without a star.
        """
        star = self._star
        self._request(lambda: self._connect_again(star, rank, sockets))

    def close(self) -> None:
        """Shut the transport down. The rank sends no more messages of its own.

        Closed follows once all queued and relayed chunks are sent and all peers have sent their shutdown.
        """
        self._request(self._end_own)

    def raise_if_failed(self) -> None:
        """Raise the error of the transport if it has failed."""
        if self._error is not None:
            raise self._error

    @property
    def _star(self) -> StarEnd:
        if self._routes.star is None:
            raise ValueError("the configuration has no star")
        return self._routes.star

    def _ring(self, ring: int) -> RingEnd:
        return self._routes.rings[ring]

    def _request(self, request: Callable[[], object]) -> None:
        self._requests.append(request)
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._wake, 1)

    def _end_own(self) -> None:
        self._closing = True
        star = self._routes.star
        for rank in tuple(star.joining) if star is not None else ():
            # They get nothing any more, and end.
            self._drop(self._routes.links[rank])
        self._routes.end_own()

    def _connect_again(self, star: StarEnd, rank: int, sockets: Sequence[socket.socket]) -> None:
        link = self._routes.links[rank]
        if self._closing:
            for each in sockets:
                each.close()
            return
        if not star.is_lost(rank):
            self._drop(link)
            star.lose(rank, TransportError(f"{link.peer} was started again"))
        self._paused.discard(link)
        star.join(rank)
        link = self._routes.connect_again(rank, sockets)
        for connection in link.connections:
            self._register(link, connection)

    def _run(self) -> None:
        try:
            self._move()
        except Exception as error:
            # Any error of this thread must end the rank too, which waits for events.
            self._error = error
            self._report(Failed(error))
        else:
            self._report(Closed())
        finally:
            for connection in self._interest:
                connection.socket.close()
            self._epoll.close()

    def _move(self) -> None:
        # Edge-triggered: each write is reported once and need not be read back.
        self._epoll.register(self._wake, select.EPOLLIN | select.EPOLLET)
        for link in self._routes.links.values():
            for connection in link.connections:
                self._register(link, connection)
        self._serve_touched()
        links = self._routes.links.values()
        while self._interest or not self._closing:
            # The longest unused connection comes first. Otherwise chunks that come one by one would all go to the
            # connection that the kernel names first, until its window is full, and wait there for a round trip while
            # others idle.
            timeout_s = self._warm.timeout_s(time.monotonic_ns())
            for descriptor, mask in sorted(self._epoll.poll(timeout_s), key=self._last_used):
                if descriptor == self._wake:
                    # Reset before the requests are read: one that comes later then wakes this thread again.
                    self._woken = False
                    while self._requests:
                        self._requests.popleft()()
                elif descriptor in self._connections:
                    self._serve(*self._connections[descriptor], mask)
            self._serve_touched()
            for link, connection in self._warm.cooling(links, time.monotonic_ns()):
                self._exchange(link, connection, select.EPOLLOUT)
                self._watch(link, connection, writable=link.wants_write(connection))

    def _register(self, link: Link, connection: Connection) -> None:
        self._connections[connection.socket.fileno()] = link, connection
        self._interest[connection] = select.EPOLLIN
        self._epoll.register(connection.socket, select.EPOLLIN)

    def _last_used(self, ready: tuple[int, int]) -> int:
        """Return the sequence number of the last chunk that the connection began, -1 if it is not a connection."""
        link_and_connection = self._connections.get(ready[0])
        return -1 if link_and_connection is None else link_and_connection[1].last_begun

    def _serve_touched(self) -> None:
        """Offer queued frames to connections that do not wait to be writable, one each, the longest unused first.

        If frames are left, ask the kernel to report when the connections can be written to.
        """
        while link := self._next_touched():
            idle = [each for each in link.connections if not self._waits(each)]
            if link.has_frames or link.ending:
                for connection in sorted(idle, key=_last_begun):
                    if link.wants_write(connection):
                        self._exchange(link, connection, select.EPOLLOUT)
            concerned = link.connections if link.ending or link.paused != (link in self._paused) else idle
            (self._paused.add if link.paused else self._paused.discard)(link)
            for connection in concerned:
                self._watch(link, connection, writable=link.wants_write(connection))

    def _next_touched(self) -> Link | None:
        """Remove and return a touched link, None if there is none."""
        if not self._routes.touched and self._closing:
            # The chunk that was sent last may have been the last one to relay.
            self._routes.end_what_is_through()
        return self._routes.touched.popitem()[0] if self._routes.touched else None

    def _waits(self, connection: Connection) -> bool:
        """Return whether ``connection`` waits to be writable. True also if it is closed."""
        return bool(self._interest.get(connection, select.EPOLLOUT) & select.EPOLLOUT)

    def _serve(self, link: Link, connection: Connection, mask: int) -> None:
        self._exchange(link, connection, mask)
        waits = self._waits(connection)
        if waits or connection.sending or link.paused or link.ending:
            # Otherwise the connection is idle and gets the next frame without asking the kernel first.
            self._watch(link, connection, writable=connection.sending or (waits and link.wants_write(connection)))

    def _exchange(self, link: Link, connection: Connection, mask: int) -> None:
        if connection not in self._interest:
            # Closed in this turn, with a peer that was lost.
            return
        try:
            self._read_and_write(link, connection, mask)
        except TransportError as error:
            if self._routes.star is None or not self._routes.star.may_lose(link.peer.rank):
                raise
            self._drop(link)
            self._routes.star.lose(link.peer.rank, error)

    def _drop(self, link: Link) -> None:
        """Close what is left of the connections to a peer."""
        for connection in link.connections:
            if connection in self._interest:
                descriptor = connection.socket.fileno()
                self._epoll.unregister(descriptor)
                del self._interest[connection], self._connections[descriptor]
                connection.socket.close()

    def _read_and_write(self, link: Link, connection: Connection, mask: int) -> None:
        try:
            if mask & ~select.EPOLLOUT:
                link.read(connection)
            if mask & select.EPOLLOUT:
                link.write(connection)
        except FrameError as fault:
            raise TransportError(f"{link.peer}: {fault}") from None
        except EOFError:
            when = "its shutdown" if not connection.shutdown_received else "this rank's shutdown"
            raise TransportError(f"{link.peer} closed a connection before {when}") from None
        except OSError as failure:
            raise TransportError(f"lost a connection to {link.peer}: {failure.strerror}") from None

    def _watch(self, link: Link, connection: Connection, *, writable: bool) -> None:
        """Watch ``connection`` for the events that it waits for, or close it when both sides are done."""
        if connection not in self._interest:
            return
        if link.ending and link.done(connection):
            descriptor = connection.socket.fileno()
            self._epoll.unregister(descriptor)
            del self._interest[connection], self._connections[descriptor]
            deliver_after_close(connection.socket)
            connection.socket.close()
            return
        interest = (0 if link.paused else select.EPOLLIN) | (select.EPOLLOUT if writable else 0)
        if interest != self._interest[connection]:
            self._epoll.modify(connection.socket, interest)
            self._interest[connection] = interest


def _last_begun(connection: Connection) -> int:
    return connection.last_begun
