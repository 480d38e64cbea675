"""The link between this rank and one peer: chunks striped over n connections, both ways at once.

Whenever a connection can be written to, it takes the next chunk from the first queue that has one ready. So a slow
connection delays only the chunk that it carries, and the end of one transfer may overlap the beginning of the next.
"""

import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wanbed.workloads.transport.chunk_queues import ChunkQueue, CreditQueue, QueuedChunk
from wanbed.workloads.transport.connection import Connection
from wanbed.workloads.transport.frames.frame import LAST_OWN, SHUTDOWN, FrameError, FrameHeader, FrameKind, credit
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.socket_options import hold_window

_NOTHING = memoryview(b"")
_CHUNKS_A_HOLD = 16
_WITH_HEADER_BYTES = 16 * 1024
"""A chunk of at most this size has probably arrived together with its header."""
_NEARLY_BYTES = 64
_FRAMES_ALONE = 4


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
    which the peer gives credit, by the kind of their chunks. ``place`` returns the arrival for a chunk.

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
        touched: dict["Link", None],
    ) -> None:
        self.peer = peer
        self.connections = tuple(Connection(connected, blank=blank) for connected in sockets)
        self._window_bytes = window_bytes
        self._unread_bytes = peer.unread_bytes
        self._queues = queues
        self._credit_queues = credit_queues
        self._place = place
        self._touched = touched
        self._credits: Counter[FrameKind] = Counter()
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
        """Whether nothing is read for now, because chunks that were read before cannot be sent on yet."""
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
        """Whether the peer will send only chunks that it relays for others."""
        return all(each.last_own_received or each.shutdown_received for each in self.connections)

    @property
    def ended(self) -> bool:
        """Whether both sides have sent SHUTDOWN over all connections."""
        return all(self.done(each) for each in self.connections)

    def done(self, connection: Connection) -> bool:
        """Return whether both sides have sent SHUTDOWN over ``connection``."""
        sent = SHUTDOWN in self._shutdowns and connection.shutdowns_sent == len(self._shutdowns)
        return sent and connection.shutdown_received and not connection.sending

    @property
    def ending(self) -> bool:
        """Whether a LAST_OWN or SHUTDOWN has been queued, so that connections may be done."""
        return bool(self._shutdowns)

    @property
    def has_frames(self) -> bool:
        """Whether there are credits or chunks that any connection may send now."""
        if self._credits:
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
        for _ in range(1 if len(self.connections) > 1 else _FRAMES_ALONE):
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
        if self._credits:
            kind, chunks = next(iter(self._credits.items()))
            if not connection.begin_frame(credit(kind, chunks), _NOTHING):
                return False
            del self._credits[kind]
            return True
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
        return False

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
            case _:
                return True
        return False


def _piece_bytes(missing_bytes: int, wakes_at: int) -> int:
    """Return how many of the missing bytes to read, so that whole pieces of ``wakes_at`` bytes remain, or none."""
    return missing_bytes if wakes_at == 1 else missing_bytes - max(missing_bytes // wakes_at - 1, 0) * wakes_at
