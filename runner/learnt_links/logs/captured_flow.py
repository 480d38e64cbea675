"""Find in a captured packet which flow it belongs to, what identifies it at both ends, and its size on the wire."""

import math
import struct
from dataclasses import dataclass

from wanbed.runner.learnt_links.logs.capture_file import CapturedPacket

_ETHERNET, _NULL, _LOOP, _COOKED, _COOKED_2 = 1, 0, 108, 113, 276
_RAW, _RAW_IPV4, _RAW_IPV6, _OLD_RAW, _OLD_BSD_RAW = 101, 228, 229, 12, 14
_LINK_HEADER = {
    _ETHERNET: 14,
    _NULL: 4,
    _LOOP: 4,
    _COOKED: 16,
    _COOKED_2: 20,
    **dict.fromkeys((_RAW, _RAW_IPV4, _RAW_IPV6, _OLD_RAW, _OLD_BSD_RAW), 0),
}
LINK_TYPES = frozenset(_LINK_HEADER)
"""Link types that are read: Ethernet, loopback, raw IP, and Linux's cooked captures."""
_VLANS = (b"\x81\x00", b"\x88\xa8")
_TCP, _UDP = 6, 17
_IDENTIFYING_BYTES = 48
"""Of the payload; with the headers' own numbers that tells packets of a flow apart."""
_ETHERNET_BYTES = 14
_SYN, _MSS_OPTION, _END_OPTION, _NO_OPTION = 0x02, 2, 0, 1
_TCP_BYTES = 20
_UNSAID_SEGMENT_BYTES, _SMALLEST_SEGMENT_BYTES = 536, 88
"""Segment sizes: that of a SYN without the option (RFC 9293), and the least that Linux takes."""
MTU_BYTES = 1500
"""The largest size of an IP packet on most networks."""

Flow = tuple[bytes, bytes, int, int, int]
"""Source and destination address, protocol, source and destination port."""


@dataclass(frozen=True)
class FlowPacket:
    """A TCP or UDP packet: its flow, what identifies it at both ends, the payload kept, and its payload's size.

    ``header_bytes`` are those of IP and of TCP or UDP. ``mtu_bytes`` is the largest IP packet that the sender of a SYN
    takes, None in any other packet.
    """

    flow: Flow
    identity: bytes
    payload: bytes
    payload_bytes: int
    header_bytes: int
    mtu_bytes: int | None

    def wire_bytes(self, mtu_bytes: int) -> int:
        """Return the size of its Ethernet frames."""
        return wire_bytes(self.payload_bytes, self.header_bytes, mtu_bytes)


def wire_bytes(payload_bytes: int, header_bytes: int, mtu_bytes: int) -> int:
    """Return the size of a packet's Ethernet frames, without preamble and checksum, whatever header the capture has.

    Hosts that leave segmentation to the network card hand over, and capture, many frames as one packet.
    """
    frames = max(1, math.ceil(payload_bytes / (mtu_bytes - header_bytes)))
    return payload_bytes + frames * (_ETHERNET_BYTES + header_bytes)


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
        # A packet that is too long for the field has none.
        length = struct.unpack_from("!H", ip, 2)[0] or packet.wire_bytes - start
        identifier, protocol = ip[4:6], ip[9]
        source, destination, header = ip[12:16], ip[16:20], 4 * (ip[0] & 15)
        if fragment:
            return None
    elif version == 6 and len(ip) >= 40:
        length, identifier, protocol = struct.unpack_from("!H", ip, 4)[0] + 40, b"", ip[6]
        source, destination, header = ip[8:24], ip[24:40], 40
    else:
        return None
    rest, mtu_bytes = ip[header:], None
    if protocol == _UDP and len(rest) >= 8:
        own, numbers = 8, b""
    elif protocol == _TCP and len(rest) >= 20:
        own, numbers = 4 * (rest[12] >> 4), rest[4:12]
        if rest[13] & _SYN:
            mtu_bytes = header + _TCP_BYTES + _segment_bytes(rest[_TCP_BYTES:own])
    else:
        return None
    ports = struct.unpack_from("!HH", rest)
    payload = rest[own:]
    identity = identifier + numbers + payload[:_IDENTIFYING_BYTES]
    flow = source, destination, protocol, *ports
    return FlowPacket(flow, identity, payload, max(0, length - header - own), header + own, mtu_bytes)


def _segment_bytes(options: bytes) -> int:
    """Return the maximum segment size that TCP options name, else the one that the standard has for none."""
    place = 0
    while place + 1 < len(options) and options[place] != _END_OPTION:
        if options[place] == _NO_OPTION:
            place += 1
            continue
        length = options[place + 1]
        if options[place] == _MSS_OPTION and length == 4 and place + 4 <= len(options):
            return max(_SMALLEST_SEGMENT_BYTES, int(struct.unpack_from("!H", options, place + 2)[0]))
        place += max(2, length)
    return _UNSAID_SEGMENT_BYTES
