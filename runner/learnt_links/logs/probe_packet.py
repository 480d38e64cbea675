"""Define what a packet of a probe holds: a mark, its number, and when it was sent."""

import struct
from dataclasses import dataclass

FRAME_HEADER_BYTES = 42
"""Ethernet, IPv4 and UDP headers, which a shaper counts as well."""

_MARK = b"wanbed probe 1\n\0"
_PACKET = struct.Struct("!16sIQ")
PROBE_BYTES = _PACKET.size


@dataclass(frozen=True)
class ProbePacket:
    """The number of a probe's packet, from 0, and the time of its sending in nanoseconds since 1970."""

    number: int
    sent_ns: int


def pack_probe(number: int, sent_ns: int) -> bytes:
    """Return the bytes with which a probe's packet begins."""
    return _PACKET.pack(_MARK, number, sent_ns)


def unpack_probe(payload: bytes) -> ProbePacket | None:
    """Return what a packet's payload says, None if it is no probe's."""
    if len(payload) < PROBE_BYTES or not payload.startswith(_MARK):
        return None
    _, number, sent_ns = _PACKET.unpack_from(payload)
    return ProbePacket(number, sent_ns)
