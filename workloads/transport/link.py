"""The link between this rank and one peer: chunks over n connections, both ways at once.

Each connection takes the next chunk whenever it can be written to, from the first lane that has one. A slow connection
thus holds up no more than the chunk it has; the end of one transfer may overlap the beginning of the next.
"""

import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from workloads.transport.chunk_queues import Chunk, ChunkQueue, CreditQueue
from workloads.transport.connection import Connection
from workloads.transport.frames.frame import LAST_OWN, SHUTDOWN, FrameError, FrameHeader, FrameKind, credit
from workloads.transport.peer import Peer
from workloads.transport.socket_options import hold_window

_NOTHING = memoryview(b"")
_CHUNKS_A_HOLD = 16
_WITH_HEADER_BYTES = 16 * 1024
"""A chunk so small is likely there when its header is."""
_NEARLY_BYTES = 64
_FRAMES_ALONE = 4


class Arrival(Protocol):
    """A chunk that has begun to arrive."""

    @property
    def payload(self) -> memoryview:
        """The memory where its bytes belong."""

    def complete(self) -> None:
        """Handle that all bytes are there."""


class Link:
    """The n connections to one peer. All calls come from the I/O thread, and none blocks.

    ``window_bytes`` is what the peer may have in flight over each of them, None for what the kernel gives. ``blank`` is
    that of ``Connection``.
    ``lanes`` hold what is to be sent, those with precedence first; ``credit_queues`` are those of them that the peer
    gives credit for. ``place`` returns the arrival for a chunk. Call ``touch`` after adding to a lane: what a
    connection waits for may have changed, and the link is put into ``touched``. ``read`` and ``write`` raise FrameError
    for what the peer should not have sent, EOFError if it closed without a goodbye, OSError if a connection has failed.
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
        self._sending: dict[Connection, Chunk] = {}
        self._begun = 0
        self._reading: dict[Connection, tuple[Arrival, memoryview]] = {}
        self._paused = False

    def touch(self) -> None:
        """Put the link into ``touched``: something was queued, or reading paused or resumed."""
        self._touched[self] = None

    @property
    def paused(self) -> bool:
        """Whether nothing is to be read for now, because what was read before cannot go on yet."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            self.touch()

    def give_credit(self, kind: FrameKind, chunks: int) -> None:
        """Let the peer send so many more chunks of that kind."""
        self._credits[kind] += chunks
        self.touch()

    def end_own(self) -> None:
        """End this rank's own chunks. Nothing more is queued, and the peer learns of it after the queued ones."""
        self._shutdowns.append(LAST_OWN)
        self.touch()

    def end(self) -> None:
        """End the link: nothing more is queued, and each connection says goodbye after its last chunk."""
        if SHUTDOWN not in self._shutdowns:
            self._shutdowns.append(SHUTDOWN)
            self.touch()

    @property
    def peer_ended_own(self) -> bool:
        """Whether all that comes from now on is relayed for others."""
        return all(each.last_own_received or each.shutdown_received for each in self.connections)

    @property
    def ended(self) -> bool:
        """Whether both sides have said goodbye over all connections."""
        return all(self.done(each) for each in self.connections)

    def done(self, connection: Connection) -> bool:
        """Return whether both sides have said goodbye over ``connection``."""
        said = SHUTDOWN in self._shutdowns and connection.shutdowns_sent == len(self._shutdowns)
        return said and connection.shutdown_received and not connection.sending

    @property
    def ending(self) -> bool:
        """Whether a farewell has been queued: connections may be done."""
        return bool(self._shutdowns)

    @property
    def has_frames(self) -> bool:
        """Whether there are frames that any connection may begin."""
        if self._credits:
            return True
        return any(queue.ready for queue in self._queues)

    def wants_write(self, connection: Connection) -> bool:
        """Return whether there is anything for ``write`` to do."""
        if connection.sending or self.has_frames:
            return True
        return connection.shutdowns_sent < len(self._shutdowns) and all(queue.empty for queue in self._queues)

    def write(self, connection: Connection) -> None:
        """Go on with the connection's frame, or begin the next one: at most one, so that all have their turn.

        If there is no other connection, it sends a few frames.
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
        """Begin the next frame. Returns False if there is none or the kernel takes none: another connection may."""
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
        """Read what has come over ``connection``, at most to the end of one chunk and the header of the next."""
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
        """Handle arrived frames, up to a chunk's header. Returns whether there is one, and its chunk worth a look."""
        while (header := connection.read_header()) is not None:
            if connection.shutdown_received:
                raise FrameError("it sent a frame after its goodbye")
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
        # Any frame may be next, the shortest too.
        connection.wake_at(1)
        return False

    def _wake_for(self, connection: Connection, missing_bytes: int) -> None:
        """Let the missing bytes of a chunk come in equal pieces of at most ``unread_bytes``."""
        pieces = -(-missing_bytes // self._unread_bytes)
        piece_bytes = missing_bytes // pieces
        # Chunks differ by a byte, which is not worth a system call each.
        if not piece_bytes - _NEARLY_BYTES <= connection.wakes_at <= piece_bytes:
            connection.wake_at(piece_bytes)

    @staticmethod
    def _hold(connection: Connection, window_bytes: int) -> None:
        """Advertise the window again: after every chunk at first, while the kernel learns, then now and again."""
        connection.chunks_received += 1
        if connection.chunks_received <= _CHUNKS_A_HOLD or connection.chunks_received % _CHUNKS_A_HOLD == 0:
            hold_window(connection.socket, window_bytes)

    def _handle(self, connection: Connection, header: FrameHeader) -> bool:
        """Handle a frame. Returns whether it is one with a payload."""
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
    """Return how much to read of what is missing, so that whole pieces of ``wakes_at`` remain, or nothing."""
    return missing_bytes if wakes_at == 1 else missing_bytes - max(missing_bytes // wakes_at - 1, 0) * wakes_at
