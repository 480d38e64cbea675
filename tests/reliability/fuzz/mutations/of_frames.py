"""Damage what goes over connections: the bytes, and what is in frames whose checksums are right."""

import json
import struct
from random import Random
from zlib import crc32

from tests.reliability.fuzz.mutations.of_bytes import damaged_bytes
from tests.reliability.fuzz.mutations.of_trees import damaged_json
from wanbed.workloads.transport.frame import CHUNK_BYTES, HELLO_BYTES, FrameHeader, FrameKind, Hello

_WHOLE = (0, 1, 2, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, CHUNK_BYTES, CHUNK_BYTES + 1)
_HELLO = {"message": "Hello", "token": "secret", "gpu": 0}


def damaged_peer_frames(data: bytes, draw: Random) -> bytes:
    """Return a hello and headers of frames with other bytes, or one whose fields have other numbers."""
    if draw.random() < 0.5:
        return damaged_bytes(data, draw)
    numbers = [draw.choice(_WHOLE) for _ in range(6)]
    try:
        if draw.random() < 0.3:
            return Hello(draw.randbytes(16), *numbers[:3]).encode() + data[HELLO_BYTES:]
        return data[:HELLO_BYTES] + FrameHeader(draw.choice(list(FrameKind)), *numbers).encode()
    except struct.error:
        # The layout has no place for such a number.
        return damaged_bytes(data, draw)


def damaged_service_frames(data: bytes, draw: Random) -> bytes:
    """Return frames with other bytes, or one whose document is another."""
    if draw.random() < 0.5:
        return damaged_bytes(data, draw)
    text = damaged_json(json.dumps(_HELLO).encode(), draw)
    return data[:4] + struct.pack("!IIQ", len(text), crc32(text), draw.choice(_WHOLE)) + text + data
