"""Find in a captured packet which flow it belongs to, and what identifies it at both ends."""

import struct
from dataclasses import dataclass

from runner.learnt_links.logs.capture_file import CapturedPacket

_ETHERNET, _NULL, _RAW, _LOOP, _COOKED, _COOKED_2 = 1, 0, 101, 108, 113, 276
_LINK_HEADER = {_ETHERNET: 14, _NULL: 4, _LOOP: 4, _RAW: 0, _COOKED: 16, _COOKED_2: 20}
LINK_TYPES = tuple(_LINK_HEADER)
"""Link types that are read: Ethernet, loopback, raw IP, and Linux's cooked captures."""
_VLANS = (b"\x81\x00", b"\x88\xa8")
_TCP, _UDP = 6, 17
_IDENTIFYING_BYTES = 48
"""Of the payload; with the headers' own numbers that tells packets of a flow apart."""

Flow = tuple[bytes, bytes, int, int, int]
"""Source and destination address, protocol, source and destination port."""


@dataclass(frozen=True)
class FlowPacket:
    """A TCP or UDP packet: its flow, what identifies it at both ends, the payload kept, and its payload's size."""

    flow: Flow
    identity: bytes
    payload: bytes
    payload_bytes: int


def flow_packet(packet: CapturedPacket) -> FlowPacket | None:
    """Return a TCP or UDP packet of IPv4 or IPv6 that is no fragment, None for any other."""
    start = _LINK_HEADER.get(packet.link_type)
    data = packet.kept
    if start is None:
        return None
    if packet.link_type == _ETHERNET:
        while data[start - 2 : start] in _VLANS:
            start += 4
    ip = data[start:]
    version = ip[0] >> 4 if ip else 0
    if version == 4 and len(ip) >= 20:
        fragment = struct.unpack_from("!H", ip, 6)[0] & 0x3FFF
        length, identifier, protocol = struct.unpack_from("!H", ip, 2)[0], ip[4:6], ip[9]
        source, destination, header = ip[12:16], ip[16:20], 4 * (ip[0] & 15)
        if fragment:
            return None
    elif version == 6 and len(ip) >= 40:
        length, identifier, protocol = struct.unpack_from("!H", ip, 4)[0] + 40, b"", ip[6]
        source, destination, header = ip[8:24], ip[24:40], 40
    else:
        return None
    rest = ip[header:]
    if protocol == _UDP and len(rest) >= 8:
        own, numbers = 8, b""
    elif protocol == _TCP and len(rest) >= 20:
        own, numbers = 4 * (rest[12] >> 4), rest[4:12]
    else:
        return None
    ports = struct.unpack_from("!HH", rest)
    payload = rest[own:]
    identity = identifier + numbers + payload[:_IDENTIFYING_BYTES]
    return FlowPacket((source, destination, protocol, *ports), identity, payload, max(0, length - header - own))
