"""The link between this rank and one peer: chunks striped over n TCP connections, both ways at once.

Whenever a connection can be written to, it takes the next chunk from the first queue that has one ready. So a slow
connection delays only the chunk that it carries, and the end of one transfer may overlap the beginning of the next. All
calls come from the I/O thread, and none blocks. Payloads that no rank reads are zeros, which are sent without a copy:
the kernel holds them once.
"""

import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

from wanbed.workloads.transport.chunk_queues import ChunkQueue, CreditQueue, QueuedChunk
from wanbed.workloads.transport.frame import (
    CHUNK_BYTES,
    HEADER_BYTES,
    KEEP_WARM,
    LAST_OWN,
    SHUTDOWN,
    FrameError,
    FrameHeader,
    FrameKind,
    credit,
    decode_header,
)
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.socket_options import hold_window


def _send_blank(connected: socket.socket, size_bytes: int) -> int:
    """Offer ``size_bytes`` zeros, at most a chunk, to the kernel. Return how many it has accepted.

    Raise BlockingIOError if it accepts none now, OSError if the connection has failed.
    """
    return os.sendfile(connected.fileno(), _zeros(), 0, size_bytes)


@cache
def _zeros() -> int:
    """Return the descriptor of an in-memory file of one chunk of zeros, which stays open until the process ends."""
    zeros = os.memfd_create("zeros")
    os.write(zeros, bytes(CHUNK_BYTES))
    return zeros


class Connection:
    """A connected, non-blocking socket. Payloads are sent from and received into their owner's memory, without a copy.

    ``blank`` payloads have a length but no contents: zeros are sent, received bytes are discarded, and the owner's
    memory is never touched. ``last_begun`` is the sequence number, on the link, of the last chunk that this connection
    began. ``last_sent_ns`` is when the kernel last accepted bytes of it, on CLOCK_MONOTONIC; None until it has sent a
    payload. ``cooling`` is set while it is to send a frame that keeps it warm, if there is no other.
    """

    def __init__(self, connected: socket.socket, *, blank: bool) -> None:
        self.socket = connected
        self.shutdowns_sent = 0
        self.last_begun = 0
        self.last_sent_ns: int | None = None
        self.cooling = False
        self.chunks_received = 0
        self.last_own_received = False
        self.shutdown_received = False
        self._blank = blank
        self._discard = socket.MSG_TRUNC if blank else 0
        self._low_water = 1
        self._header_unsent = memoryview(b"")
        self._payload_unsent = memoryview(b"")
        self._header = bytearray(HEADER_BYTES)
        self._header_missing = memoryview(self._header)

    @property
    def sending(self) -> bool:
        """Return whether the kernel has not yet accepted all of the current frame."""
        return bool(self._header_unsent or self._payload_unsent)

    def begin_frame(self, header: FrameHeader, payload: memoryview) -> bool:
        """Offer a frame to the kernel; ``push`` offers the rest. The frame before it must have been accepted.

        Return False, and begin nothing, if the kernel accepts no byte now. Raise OSError if the connection has failed.
        """
        encoded = memoryview(header.encode())
        self._header_unsent, self._payload_unsent = encoded, payload
        self.push()
        if self._header_unsent is not encoded:
            return True
        self._header_unsent = self._payload_unsent = encoded[:0]
        return False

    def push(self) -> None:
        """Offer the rest of the frame to the kernel. Raise OSError if the connection has failed."""
        try:
            if self._blank:
                self._push_blank()
            elif self._header_unsent:
                self._count_accepted(self.socket.sendmsg((self._header_unsent, self._payload_unsent)))
            else:
                self._count_accepted(self.socket.send(self._payload_unsent))
        except BlockingIOError:
            pass

    def _push_blank(self) -> None:
        if self._header_unsent:
            self._count_accepted(self.socket.send(self._header_unsent, socket.MSG_MORE if self._payload_unsent else 0))
        if self._payload_unsent and not self._header_unsent:
            self._count_accepted(_send_blank(self.socket, self._payload_unsent.nbytes))

    def _count_accepted(self, accepted: int) -> None:
        if self.last_sent_ns is not None or self._payload_unsent:
            self.last_sent_ns = time.monotonic_ns()
        of_header = min(accepted, len(self._header_unsent))
        if of_header:
            self._header_unsent = self._header_unsent[of_header:]
        self._payload_unsent = self._payload_unsent[accepted - of_header :]

    def read_header(self) -> FrameHeader | None:
        """Return the next frame's header, None until all of it has been received.

        Raise FrameError if it is not valid, EOFError if the peer has closed, OSError if the connection has failed.
        """
        read = self._receive(self._header_missing, 0)
        if read != len(self._header_missing):
            self._header_missing = self._header_missing[read:]
            return None
        self._header_missing = memoryview(self._header)
        return decode_header(self._header)

    def read_payload(self, missing: memoryview) -> int:
        """Read at most ``missing.nbytes`` bytes into ``missing``, or discard them if blank. Return how many, maybe 0.

        Raise EOFError if the peer has closed, OSError if the connection has failed.
        """
        return self._receive(missing, self._discard)

    def wake_at(self, unread_bytes: int) -> None:
        """Report the socket as readable only with at least ``unread_bytes`` to read, or when the peer has closed."""
        if unread_bytes != self._low_water:
            self._low_water = unread_bytes
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, unread_bytes)

    @property
    def wakes_at(self) -> int:
        """The number of unread bytes from which on the socket is readable."""
        return self._low_water

    def _receive(self, missing: memoryview, flags: int) -> int:
        try:
            read = self.socket.recv_into(missing, 0, flags)
        except BlockingIOError:
            return 0
        if read == 0:
            raise EOFError
        return read


_NOTHING = memoryview(b"")

_CHUNKS_A_HOLD = 16

_WITH_HEADER_BYTES = 16 * 1024
"""A chunk of at most this size has probably arrived together with its header."""

_NEARLY_BYTES = 64

FRAMES_ALONE = 4
"""A connection without another beside it sends so many frames at most before others are looked at."""


class Arrival(Protocol):
    """A chunk whose header has arrived."""

    @property
    def payload(self) -> memoryview:
        """The memory that its bytes are read into."""

    def complete(self) -> None:
        """Handle that all bytes have been read."""


class Link:
    """The n connections to one peer. All calls come from the I/O thread, and none blocks.

    ``window_bytes`` is the receive window of each connection, None to let the kernel choose it. ``blank`` is as for
    ``Connection``. ``queues`` hold the chunks to send, in order of precedence. ``credit_queues`` are those of them for
    which the peer gives credit, by the kind of their chunks. ``place`` returns the arrival for a chunk. ``asked``
    handles the peer's request for a message.

    Call ``touch`` after adding to a queue. It puts the link into ``touched``, so that the I/O thread checks again what
    its connections wait for. ``read`` and ``write`` raise FrameError if the peer sent something invalid, EOFError if it
    closed without a shutdown, OSError if a connection has failed.
    """

    def __init__(
        self,
        peer: Peer,
        sockets: Sequence[socket.socket],
        queues: Sequence[ChunkQueue],
        *,
        window_bytes: int | None,
        blank: bool,
        credit_queues: Mapping[FrameKind, CreditQueue],
        place: Callable[["Link", FrameHeader], Arrival],
        asked: Callable[["Link", FrameHeader], None],
        touched: dict["Link", None],
    ) -> None:
        self.peer = peer
        self.connections = tuple(Connection(connected, blank=blank) for connected in sockets)
        self._window_bytes = window_bytes
        self._unread_bytes = peer.unread_bytes
        self._queues = queues
        self._credit_queues = credit_queues
        self._place = place
        self._asked = asked
        self._touched = touched
        self._credits: Counter[FrameKind] = Counter()
        self._requests: deque[FrameHeader] = deque()
        self._shutdowns: list[FrameHeader] = []
        self._sending: dict[Connection, QueuedChunk] = {}
        self._begun = 0
        self._reading: dict[Connection, tuple[Arrival, memoryview]] = {}
        self._paused = False

    def touch(self) -> None:
        """Put the link into ``touched``, after a chunk was queued or reading was paused or resumed."""
        self._touched[self] = None

    @property
    def paused(self) -> bool:
        """Return whether nothing is read for now, because chunks that were read before cannot be sent on yet."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            self.touch()

    def give_credit(self, kind: FrameKind, chunks: int) -> None:
        """Let the peer send ``chunks`` more chunks of that kind."""
        self._credits[kind] += chunks
        self.touch()

    def request(self, header: FrameHeader) -> None:
        """Ask the peer for a message, before any chunk that waits."""
        self._requests.append(header)
        self.touch()

    def end_own(self) -> None:
        """Announce the last of this rank's own chunks, after those already queued. Only relayed chunks may follow."""
        self._shutdowns.append(LAST_OWN)
        self.touch()

    def end(self) -> None:
        """Shut the link down: no chunk is queued any more, and each connection sends SHUTDOWN after its last chunk."""
        if SHUTDOWN not in self._shutdowns:
            self._shutdowns.append(SHUTDOWN)
            self.touch()

    @property
    def peer_ended_own(self) -> bool:
        """Return whether the peer will send only chunks that it relays for others."""
        return all(each.last_own_received or each.shutdown_received for each in self.connections)

    @property
    def ended(self) -> bool:
        """Return whether both sides have sent SHUTDOWN over all connections."""
        return all(self.done(each) for each in self.connections)

    def done(self, connection: Connection) -> bool:
        """Return whether both sides have sent SHUTDOWN over ``connection``."""
        sent = SHUTDOWN in self._shutdowns and connection.shutdowns_sent == len(self._shutdowns)
        return sent and connection.shutdown_received and not connection.sending

    @property
    def ending(self) -> bool:
        """Return whether a LAST_OWN or SHUTDOWN has been queued, so that connections may be done."""
        return bool(self._shutdowns)

    @property
    def has_frames(self) -> bool:
        """Return whether there are requests, credits or chunks that any connection may send now."""
        if self._requests or self._credits:
            return True
        return any(queue.ready for queue in self._queues)

    def wants_write(self, connection: Connection) -> bool:
        """Return whether ``write`` would have something to send over ``connection``."""
        if connection.sending or self.has_frames:
            return True
        return connection.shutdowns_sent < len(self._shutdowns) and all(queue.empty for queue in self._queues)

    def write(self, connection: Connection) -> None:
        """Continue the connection's frame, or begin the next one.

        Send at most one frame, so that all connections get their turn, or a few if there is no other connection.
        """
        for _ in range(1 if len(self.connections) > 1 else FRAMES_ALONE):
            if connection.sending:
                connection.push()
            elif not self._begin_frame(connection):
                break
            if connection.sending:
                break
            if connection in self._sending:
                self._sending.pop(connection).source.accepted()
        if self._shutdowns:
            self.touch()

    def _begin_frame(self, connection: Connection) -> bool:
        """Begin the next frame. Return False if there is none, or if the kernel accepts none on this connection."""
        if self._requests or self._credits:
            return self._begin_frame_alone(connection)
        for queue in self._queues:
            if queue.ready:
                chunk = queue.head
                chunk.source.begun()
                if not connection.begin_frame(chunk.header, chunk.payload):
                    return False
                queue.pop()
                self._sending[connection] = chunk
                self._begun += 1
                connection.last_begun = self._begun
                if queue.ready:
                    self.touch()
                return True
        if self.wants_write(connection) and connection.begin_frame(
            self._shutdowns[connection.shutdowns_sent], _NOTHING
        ):
            connection.shutdowns_sent += 1
            return True
        if connection.cooling and not self._shutdowns:
            return connection.begin_frame(KEEP_WARM, _NOTHING)
        return False

    def _begin_frame_alone(self, connection: Connection) -> bool:
        """Begin the frame of a request or of credit, which no chunk follows."""
        if self._requests:
            begun = connection.begin_frame(self._requests[0], _NOTHING)
            if begun:
                self._requests.popleft()
            return begun
        kind, chunks = next(iter(self._credits.items()))
        begun = connection.begin_frame(credit(kind, chunks), _NOTHING)
        if begun:
            del self._credits[kind]
        return begun

    def read(self, connection: Connection) -> None:
        """Read from ``connection``, at most to the end of one chunk and the header of the next."""
        if connection not in self._reading and not self._begin_arrival(connection):
            return
        arrival, missing = self._reading[connection]
        missing = missing[connection.read_payload(missing[: _piece_bytes(missing.nbytes, connection.wakes_at)]) :]
        if missing:
            self._reading[connection] = arrival, missing
            self._wake_for(connection, missing.nbytes)
            return
        del self._reading[connection]
        if self._window_bytes is not None:
            self._hold(connection, self._window_bytes)
        arrival.complete()
        if self._paused:
            connection.wake_at(1)
        else:
            self._begin_arrival(connection)

    def _begin_arrival(self, connection: Connection) -> bool:
        """Handle arrived frames up to a chunk's header. Return whether its chunk should be read at once."""
        while (header := connection.read_header()) is not None:
            if connection.shutdown_received:
                raise FrameError("it sent a frame after its shutdown")
            if self._handle(connection, header):
                arrival = self._place(self, header)
                self._reading[connection] = arrival, arrival.payload
                at_once = min(header.length, self._unread_bytes) <= _WITH_HEADER_BYTES
                if not at_once:
                    self._wake_for(connection, header.length)
                elif connection.wakes_at > header.length:
                    connection.wake_at(1)
                return at_once
            if connection.shutdown_received:
                break
        # The next frame may be of any kind, even the shortest.
        connection.wake_at(1)
        return False

    def _wake_for(self, connection: Connection, missing_bytes: int) -> None:
        """Wake up for the missing bytes of a chunk in equal pieces of at most the peer's ``unread_bytes``."""
        pieces = -(-missing_bytes // self._unread_bytes)
        piece_bytes = missing_bytes // pieces
        # Chunks differ by one byte, which is not worth a system call for each of them.
        if not piece_bytes - _NEARLY_BYTES <= connection.wakes_at <= piece_bytes:
            connection.wake_at(piece_bytes)

    @staticmethod
    def _hold(connection: Connection, window_bytes: int) -> None:
        """Set the window again: after each of the first 16 chunks, while the kernel adapts, then after every 16th."""
        connection.chunks_received += 1
        if connection.chunks_received <= _CHUNKS_A_HOLD or connection.chunks_received % _CHUNKS_A_HOLD == 0:
            hold_window(connection.socket, window_bytes)

    def _handle(self, connection: Connection, header: FrameHeader) -> bool:
        """Handle a frame. Return whether it has a payload."""
        match header.kind:
            case FrameKind.SHUTDOWN:
                connection.shutdown_received = True
            case FrameKind.LAST_OWN:
                if connection.last_own_received:
                    raise FrameError("it announced its last own chunk twice")
                connection.last_own_received = True
            case FrameKind.CREDIT:
                queue = self._credit_queues.get(FrameKind(header.number))
                if queue is None:
                    raise FrameError(f"it gives credit for {FrameKind(header.number).name.lower()}s that it never gets")
                queue.grant(header.total_bytes)
                self.touch()
            case FrameKind.REQUEST:
                self._asked(self, header)
            case FrameKind.KEEP_WARM:
                pass
            case _:
                return True
        return False


def _piece_bytes(missing_bytes: int, wakes_at: int) -> int:
    """Return how many of the missing bytes to read, so that whole pieces of ``wakes_at`` bytes remain, or none."""
    return missing_bytes if wakes_at == 1 else missing_bytes - max(missing_bytes // wakes_at - 1, 0) * wakes_at
