"""Exchange frames between the processes of a prefill service over one TCP connection, driven by a selector.

A frame is a header, a JSON object (the document) and a payload. Where prefill is replayed, the payload is zeros. These
are really sent, received and counted, and then discarded, so that no buffer grows with them. The payload of a computed
tensor is kept by the receiver after its checksum has been verified.

The data of each of the selector's keys is a function of the event mask. A timer wakes the selector with microsecond
precision, because epoll's timeout has a resolution of one millisecond.
"""

import contextlib
import ctypes
import json
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

from wanbed.workloads.transport.frame import FrameError

_MAGIC = b"wbS1"

_HEADER = struct.Struct("!4sIIQ")

_LARGEST_DOCUMENT_BYTES = 1 << 20

_SCRATCH_BYTES = 256 * 1024

_AT_ONCE_BYTES = 4 * _SCRATCH_BYTES
"""At most this much is read or written in one call, so that the caller can handle other events in between."""

_ZEROS = memoryview(bytes(_SCRATCH_BYTES))

Document = dict[str, Any]

Payload = int | memoryview
"""A number of zeros, or contiguous bytes, which must not change until they have been sent."""

CHECKSUM, PAYLOAD = "payload_checksum", "payload"
"""Keys that a document gets for a computed payload: its checksum, and the received payload itself."""

LARGEST_KEPT_BYTES = 1 << 30

SHUTDOWN: Document = {"message": "Shutdown"}
"""The last document of a process that ends as planned, to each peer that would otherwise report it as lost."""

_SHUTDOWN_S = 1.0


class FrameChannel:
    """Sends and receives frames over a non-blocking connection. No method blocks.

    Zeros to be sent are stored as a size, so memory stays bounded while the peer reads slowly. With ``keeps_payloads``
    received payloads are in their documents under ``PAYLOAD``. The first frame, the sender's hello, must have none.
    """

    def __init__(self, connection: socket.socket, *, keeps_payloads: bool = False) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received_bytes = 0
        """Payload bytes received so far, those of incomplete frames included."""
        self.sent_bytes = 0
        """Payload bytes that the kernel has accepted so far."""
        self._keeps_payloads = keeps_payloads
        self._kept: bytearray | None = None
        self._greeted = False
        self._outgoing: deque[tuple[Payload, bool]] = deque()
        self._buffer = bytearray()
        self._wanted_bytes = _HEADER.size
        self._document: Document | None = None
        self._payload_left = 0
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))

    def fileno(self) -> int:
        """Return the connection's descriptor."""
        return self.connection.fileno()

    @property
    def unsent(self) -> bool:
        """Return whether queued data has not yet been handed to the kernel."""
        return bool(self._outgoing)

    def send(self, document: Document, payload: Payload = 0) -> None:
        """Queue a frame, to be sent by ``flush``."""
        payload_bytes = payload if isinstance(payload, int) else payload.nbytes
        if not isinstance(payload, int):
            document = {**document, CHECKSUM: crc32(payload)}
        text = json.dumps(document, separators=(",", ":")).encode()
        header = _HEADER.pack(_MAGIC, len(text), crc32(text), payload_bytes)
        self._outgoing.append((memoryview(header + text), False))
        if payload_bytes:
            self._outgoing.append((payload, True))

    def flush(self) -> None:
        """Hand the kernel as much as it accepts now. Raises OSError if the connection has ended."""
        handed_bytes = 0
        while self._outgoing and handed_bytes < _AT_ONCE_BYTES:
            head, of_payload = self._outgoing[0]
            try:
                sent = self.connection.send(_ZEROS[:head] if isinstance(head, int) else head)
            except BlockingIOError:
                return
            handed_bytes += sent
            if of_payload:
                self.sent_bytes += sent
            left: Payload = head - sent if isinstance(head, int) else head[sent:]
            if left:
                self._outgoing[0] = left, of_payload
            else:
                self._outgoing.popleft()

    def receive(self) -> list[Document]:
        """Return the documents of the frames that are now complete (their payloads included), in order.

        Raises FrameError if the data is not a valid frame, ConnectionResetError if the peer has closed the connection,
        and other OSErrors.
        """
        complete: list[Document] = []
        read_bytes = 0
        while read_bytes < _AT_ONCE_BYTES:
            try:
                size_bytes = self.connection.recv_into(self._scratch)
            except BlockingIOError:
                break
            if not size_bytes:
                if complete:
                    break
                raise ConnectionResetError("the peer has closed the connection")
            read_bytes += size_bytes
            self._take(self._scratch[:size_bytes], complete)
        return complete

    def close(self) -> None:
        """Close the connection. Data that the kernel has accepted is still delivered."""
        self.connection.close()

    def _take(self, part: memoryview, complete: list[Document]) -> None:
        while True:
            if self._document is not None:
                of_payload = min(part.nbytes, self._payload_left)
                self._payload_left -= of_payload
                self.received_bytes += of_payload
                if self._kept is not None:
                    self._kept += part[:of_payload]
                part = part[of_payload:]
                if self._payload_left:
                    return
                complete.append(self._document if self._kept is None else _with_payload(self._document, self._kept))
                self._kept = None
                self._document = None
            if not part.nbytes:
                return
            missing = self._wanted_bytes - len(self._buffer)
            self._buffer += part[:missing]
            part = part[missing:]
            if len(self._buffer) == self._wanted_bytes:
                self._parse()

    def _parse(self) -> None:
        """Parse the header, or header and document, which are complete in the buffer."""
        magic, document_bytes, checksum, payload_bytes = _HEADER.unpack_from(self._buffer)
        if self._wanted_bytes == _HEADER.size:
            if magic != _MAGIC:
                raise FrameError(f"it speaks another protocol, there is no frame in {bytes(self._buffer[:8])!r}")
            if not 2 <= document_bytes <= _LARGEST_DOCUMENT_BYTES:
                raise FrameError(f"its frame has a document of {document_bytes} bytes")
            self._wanted_bytes += document_bytes
            return
        text = bytes(self._buffer[_HEADER.size :])
        self._buffer.clear()
        self._wanted_bytes = _HEADER.size
        if crc32(text) != checksum:
            raise FrameError("the checksum of its frame is wrong")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise FrameError("its frame holds no JSON object")
        if self._keeps_payloads and payload_bytes:
            if not self._greeted or payload_bytes > LARGEST_KEPT_BYTES:
                raise FrameError(f"its frame brings {payload_bytes} bytes where none are expected")
            self._kept = bytearray()
        self._greeted = True
        self._document, self._payload_left = document, payload_bytes


def _with_payload(document: Document, payload: bytearray) -> Document:
    if crc32(payload) != document.get(CHECKSUM):
        raise FrameError("the checksum of its payload is wrong")
    return {**document, PAYLOAD: memoryview(payload)}


_CLOCK_MONOTONIC = 1

_ABSOLUTE = 1


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class PreciseTimer:
    """A timerfd. Any thread may set it; the last setting counts. Raises OSError if the kernel refuses."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def fileno(self) -> int:
        """Return the descriptor, which is readable from the set time until ``passed`` is called."""
        return int(self._descriptor)

    def set(self, at_ns: int) -> None:
        """Wake the selector at the CLOCK_MONOTONIC time ``at_ns``, at once if it is in the past."""
        seconds, nanoseconds = divmod(max(1, at_ns), 1_000_000_000)
        setting = _Setting(value=_Time(seconds, nanoseconds))
        if self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(setting), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def passed(self) -> None:
        """Clear the wake-up. The descriptor is not readable until the timer has been set again."""
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def dispatch(selector: selectors.BaseSelector, timeout_s: float | None) -> None:
    """Wait for the selector, and call the function of every key that is ready.

    A key that an earlier function of the same round has unregistered is left out.
    """
    for key, mask in selector.select(timeout_s):
        # Looked up by descriptor: a socket that has been closed meanwhile has none any more, which is an error.
        current = selector.get_map().get(key.fd)
        if current is not None and current.fileobj is key.fileobj:
            key.data(mask)


class PeerChannel:
    """Reads and writes a channel as far as possible, whenever the selector reports it as ready.

    ``handle`` is called with each received document. ``gone`` is called once, with the reason, when the connection has
    ended; documents sent after that are dropped. ``here`` is true until then.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        channel: FrameChannel,
        handle: Callable[[Document], None],
        gone: Callable[[str], None],
    ) -> None:
        self.channel = channel
        self.here = True
        self._selector = selector
        self._handle = handle
        self._gone = gone
        self._mask = selectors.EVENT_READ
        selector.register(channel, self._mask, self._ready)
        self._write()

    def send(self, document: Document, payload: Payload = 0) -> None:
        """Send a frame: at once as far as the kernel accepts it, the rest when the selector reports the channel."""
        if self.here:
            self.channel.send(document, payload)
            self._write()

    def handle_all(self, documents: Iterable[Document]) -> None:
        """Handle documents that arrived before this object was created."""
        for document in documents:
            self._handle(document)

    def close(self) -> None:
        """Close the connection without calling ``gone``."""
        if self.here:
            self.here = False
            self._selector.unregister(self.channel)
            self.channel.close()

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write()
        if self.here and mask & selectors.EVENT_READ:
            try:
                documents = self.channel.receive()
            except (OSError, FrameError) as fault:
                self._end(str(fault))
                return
            self.handle_all(documents)

    def _write(self) -> None:
        mask = selectors.EVENT_READ
        # Reading also finds out that the connection has ended, after the documents that the peer sent before its end.
        with contextlib.suppress(OSError):
            self.channel.flush()
            if self.channel.unsent:
                mask |= selectors.EVENT_WRITE
        if mask != self._mask:
            self._mask = mask
            self._selector.modify(self.channel, mask, self._ready)

    def _end(self, why: str) -> None:
        self.close()
        self._gone(why)


def send_last(selector: selectors.BaseSelector, channels: Sequence[PeerChannel]) -> None:
    """Dispatch until the channels have sent everything or have ended, for at most a second."""
    deadline_s = time.monotonic() + _SHUTDOWN_S
    while any(each.here and each.channel.unsent for each in channels) and time.monotonic() < deadline_s:
        dispatch(selector, 0.1)
