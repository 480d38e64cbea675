"""The frames on a connection: one hello each way, then chunks of what ranks send each other, then a shutdown.

Every frame begins with a header of fixed size, which ends in a CRC32 of the bytes before it. No other field is used
before the magic, the CRC and the version have been checked.

Cut a transfer into chunks, and stripe the chunks over node pairs.
"""

import struct
from enum import IntEnum
from typing import Any, NamedTuple
from zlib import crc32

WIRE_VERSION = 6

CHUNK_BYTES = 1024 * 1024

RUN_TOKEN_BYTES = 16

_HELLO_MAGIC = b"wbHI"

_HEADER_MAGIC = b"wbCK"

_CRC = struct.Struct("!I")

_HELLO_FIELDS = struct.Struct(f"!4sH{RUN_TOKEN_BYTES}sIHH")

_HEADER_FIELDS = struct.Struct("!4sHHIIIQQI")

HELLO_BYTES = _HELLO_FIELDS.size + _CRC.size

HEADER_BYTES = _HEADER_FIELDS.size + _CRC.size


class FrameError(ValueError):
    """Raised for bytes that are no frame of this protocol, or an inconsistent frame. The message gives the fault."""


class FrameKind(IntEnum):
    """The kind of a frame. Only the headers of ``CHUNK_KINDS`` are followed by a chunk.

    NORM is a segment of the ring of the gradient norm. PART is a chunk of what is summed over a star, or of the sum;
    STATE is one of what a replica begins with that joins a training under way. CREDIT lets the peer send more chunks of
    a kind, REQUEST asks it for a message. KEEP_WARM says nothing. After LAST_OWN the sender sends only chunks that it
    relays for others, after SHUTDOWN no frame.
    """

    ACTIVATION = 1
    GRADIENT = 2
    SEGMENT = 3
    CREDIT = 4
    LAST_OWN = 5
    SHUTDOWN = 6
    PART = 7
    STATE = 8
    NORM = 9
    REQUEST = 10
    KEEP_WARM = 11


CHUNK_KINDS = (
    FrameKind.ACTIVATION,
    FrameKind.GRADIENT,
    FrameKind.SEGMENT,
    FrameKind.PART,
    FrameKind.STATE,
    FrameKind.NORM,
)


_REQUESTED_KINDS = (FrameKind.ACTIVATION, FrameKind.GRADIENT)


class Hello(NamedTuple):
    """The first frame each way: the run, the rank, the index of this connection, and the number of connections."""

    run_token: bytes
    rank: int
    connection: int
    connections: int

    def encode(self) -> bytes:
        """Return the frame, ``HELLO_BYTES`` long."""
        return _sealed(_HELLO_FIELDS.pack(_HELLO_MAGIC, WIRE_VERSION, *self))


class FrameHeader(NamedTuple):
    """The header of a frame. A chunk has ``length`` bytes, at ``offset`` of the ``total_bytes`` of its transfer.

    ``owner`` is the pipeline whose transfer it is. ``number`` is the microbatch, the ring step of a SEGMENT or NORM,
    or the count of parts in a PART, whose ``iteration`` counts the sums; in a STATE it is how many sums were applied
    before its ``iteration``. CREDIT has the kind of chunk in ``number``, the count in ``total_bytes``, and zero in the
    other fields. REQUEST has the first four fields of the chunks that it asks for, but its kind, which is in
    ``total_bytes``, and zero in the other fields. LAST_OWN, SHUTDOWN and KEEP_WARM have zero in all fields.
    """

    kind: FrameKind
    owner: int
    iteration: int
    number: int
    total_bytes: int
    offset: int
    length: int

    def encode(self) -> bytes:
        """Return the header, ``HEADER_BYTES`` long."""
        kind, *numbers = self
        return _sealed(_HEADER_FIELDS.pack(_HEADER_MAGIC, WIRE_VERSION, kind, *numbers))


SHUTDOWN = FrameHeader(FrameKind.SHUTDOWN, 0, 0, 0, 0, 0, 0)

LAST_OWN = FrameHeader(FrameKind.LAST_OWN, 0, 0, 0, 0, 0, 0)

KEEP_WARM = FrameHeader(FrameKind.KEEP_WARM, 0, 0, 0, 0, 0, 0)


def credit(kind: FrameKind, chunks: int) -> FrameHeader:
    """Return the frame that lets the peer send ``chunks`` more chunks of that kind."""
    return FrameHeader(FrameKind.CREDIT, 0, 0, kind, chunks, 0, 0)


def request(kind: FrameKind, owner: int, iteration: int, number: int) -> FrameHeader:
    """Return the frame that asks for the activation or gradient of that pipeline, iteration and number."""
    return FrameHeader(FrameKind.REQUEST, owner, iteration, number, kind, 0, 0)


def decode_hello(frame: bytes | bytearray) -> Hello:
    """Parse ``HELLO_BYTES`` bytes. Raise FrameError if they are not a consistent hello of this version."""
    token, rank, connection, connections = _unsealed(frame, _HELLO_FIELDS, _HELLO_MAGIC, "hello")
    if connection >= connections:
        raise FrameError(f"its hello is inconsistent: connection {connection} of {connections}")
    return Hello(token, rank, connection, connections)


def decode_header(frame: bytes | bytearray) -> FrameHeader:
    """Parse ``HEADER_BYTES`` bytes. Raise FrameError if they are not a consistent header of this version."""
    kind_number, owner, iteration, number, total_bytes, offset, length = _unsealed(
        frame, _HEADER_FIELDS, _HEADER_MAGIC, "header"
    )
    try:
        kind = FrameKind(kind_number)
    except ValueError:
        raise FrameError(f"its frame is of the unknown kind {kind_number}") from None
    header = FrameHeader(kind, owner, iteration, number, total_bytes, offset, length)
    if kind in CHUNK_KINDS:
        if not 1 <= length <= CHUNK_BYTES or offset + length > total_bytes:
            raise FrameError(f"its chunk is inconsistent: {length} bytes at {offset} of {total_bytes}")
    elif kind is FrameKind.CREDIT:
        if number not in CHUNK_KINDS or total_bytes < 1 or header != credit(FrameKind(number), total_bytes):
            raise FrameError("its credit is inconsistent")
    elif kind is FrameKind.REQUEST:
        if total_bytes not in _REQUESTED_KINDS or offset or length:
            raise FrameError("its request is inconsistent")
    elif header not in {SHUTDOWN, LAST_OWN, KEEP_WARM}:
        raise FrameError(f"its {kind.name.lower().replace('_', ' ')} carries a chunk")
    return header


def _sealed(fields: bytes) -> bytes:
    return fields + _CRC.pack(crc32(fields))


def _unsealed(frame: bytes | bytearray, layout: struct.Struct, magic: bytes, what: str) -> list[Any]:
    if len(frame) != layout.size + _CRC.size:
        raise FrameError(f"its {what} has {len(frame)} bytes in place of {layout.size + _CRC.size}")
    found_magic, version, *fields = layout.unpack_from(frame)
    if found_magic != magic:
        raise FrameError(f"it speaks another protocol, there is no {what} in {bytes(frame[:8])!r}")
    if crc32(memoryview(frame)[: layout.size]) != _CRC.unpack_from(frame, layout.size)[0]:
        raise FrameError(f"the checksum of its {what} is wrong")
    if version != WIRE_VERSION:
        raise FrameError(f"it speaks version {version}, this program speaks {WIRE_VERSION}")
    return fields


_SMALL_CHUNK_BYTES = 16 * 1024

_CHUNKS_WANTED = 16
"""So many chunks a node pair keep scatter, WAN and gather busy at once. Smaller chunks cost more than they gain."""

_CHUNKS_A_CONNECTION = 4
"""With so many chunks a connection, faster connections can carry more of them than slower ones."""


class Cutting:
    """The chunks of a transfer of ``total_bytes``. Chunk i goes over node pair i mod ``node_pairs``.

    Chunk sizes differ by one byte at most, and none exceeds ``CHUNK_BYTES``. Every node pair has the same number of
    chunks, which its ``connections`` carry. With fewer bytes than node pairs, each byte is a chunk. Chunks are
    computed, not listed, so that a transfer of any size takes no memory.
    """

    def __init__(self, total_bytes: int, node_pairs: int, connections: int = 1) -> None:
        needed = -(-total_bytes // (node_pairs * CHUNK_BYTES))
        wanted = max(_CHUNKS_WANTED, _CHUNKS_A_CONNECTION * connections)
        wanted = min(wanted, total_bytes // node_pairs // _SMALL_CHUNK_BYTES)
        self.total_bytes = total_bytes
        self.node_pairs = node_pairs
        self.chunks = min(total_bytes, max(needed, wanted) * node_pairs)
        self.largest_bytes = -(-total_bytes // self.chunks)

    def chunks_of(self, node_pair: int) -> range:
        """Return the indices of the chunks that go over a node pair, 0 for the DP-cell's first pipeline."""
        return range(node_pair, self.chunks, self.node_pairs)

    def chunk(self, index: int) -> tuple[int, int]:
        """Return the offset and length of a chunk."""
        offset = self._offset(index)
        return offset, self._offset(index + 1) - offset

    def index(self, offset: int, length: int) -> int | None:
        """Return the index of the chunk with that offset and length, None if there is none."""
        index = -(-offset * self.chunks // self.total_bytes)
        return index if 0 <= index < self.chunks and self.chunk(index) == (offset, length) else None

    def _offset(self, index: int) -> int:
        return self.total_bytes * index // self.chunks
