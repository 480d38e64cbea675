"""The frames between the processes of a prefill service, over one TCP connection.

A frame is a header, a JSON object, and a payload. For a tensor whose contents nobody computes, the payload is zeros.
They are really sent, read, counted and thrown away, so that no buffer grows with them. A tensor that was computed is
kept by whoever reads it, once its checksum has been found to be right.
"""

import json
import socket
import struct
from collections import deque
from typing import Any
from zlib import crc32

from workloads.transport.frames.frame import FrameError

_MAGIC = b"wbS1"
_HEADER = struct.Struct("!4sIIQ")
_LARGEST_DOCUMENT_BYTES = 1 << 20
_SCRATCH_BYTES = 256 * 1024
_AT_ONCE_BYTES = 4 * _SCRATCH_BYTES
"""After so many, whoever reads or writes looks at what else there is to do."""
_ZEROS = memoryview(bytes(_SCRATCH_BYTES))

Document = dict[str, Any]
Payload = int | memoryview
"""So many zeros, or contiguous bytes, which stay as they are until they have been sent."""

CHECKSUM, PAYLOAD = "payload_checksum", "payload"
"""Of a document's payload, where that was computed: what it says of it, and under what it is found on arrival."""

LARGEST_KEPT_BYTES = 1 << 30


class FrameChannel:
    """Frames over a non-blocking connection. Nothing here ever waits.

    Zeros to be sent are kept as sizes, however many: memory stays bounded while the peer reads slowly. With
    ``keeps_payloads`` those that arrive are found in their documents under ``PAYLOAD``. The first frame, which
    names the sender, has none.
    """

    def __init__(self, connection: socket.socket, *, keeps_payloads: bool = False) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received_bytes = 0
        """Of payload, whole frames or not."""
        self.sent_bytes = 0
        """Of payload, as the kernel accepted it."""
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
        """Whether the kernel has yet to take something."""
        return bool(self._outgoing)

    def send(self, document: Document, payload: Payload = 0) -> None:
        """Queue a frame; ``flush`` sends it."""
        payload_bytes = payload if isinstance(payload, int) else payload.nbytes
        if not isinstance(payload, int):
            document = {**document, CHECKSUM: crc32(payload)}
        text = json.dumps(document, separators=(",", ":")).encode()
        header = _HEADER.pack(_MAGIC, len(text), crc32(text), payload_bytes)
        self._outgoing.append((memoryview(header + text), False))
        if payload_bytes:
            self._outgoing.append((payload, True))

    def flush(self) -> None:
        """Hand the kernel as much as it takes now. Raises OSError where the connection has ended."""
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
        """Return the documents of the frames that have become whole, their payloads included, in order.

        Raises FrameError for what is no frame, ConnectionResetError if the peer has closed, and OSError.
        """
        whole: list[Document] = []
        read_bytes = 0
        while read_bytes < _AT_ONCE_BYTES:
            try:
                size_bytes = self.connection.recv_into(self._scratch)
            except BlockingIOError:
                break
            if not size_bytes:
                if whole:
                    break
                raise ConnectionResetError("the peer has closed the connection")
            read_bytes += size_bytes
            self._take(self._scratch[:size_bytes], whole)
        return whole

    def close(self) -> None:
        """Let go of the connection; what the kernel has accepted is still delivered."""
        self.connection.close()

    def _take(self, part: memoryview, whole: list[Document]) -> None:
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
                whole.append(self._document if self._kept is None else _with_payload(self._document, self._kept))
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
        """Parse the header, or header and document, once they are whole."""
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
        except ValueError:
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
