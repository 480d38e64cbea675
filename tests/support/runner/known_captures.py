"""Captures of packets as tcpdump writes them: of any link type, pcap or pcapng, with segments joined or not."""

import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from wanbed.runner.learnt_links.packet_log import LOST_NS, PacketLog
from wanbed.runner.learnt_links.probe import FRAME_HEADER_BYTES, PROBE_BYTES, pack_probe

START_NS = 1_700_000_000_123_456_789
"""The time at which captured logs begin."""
Frames = Iterable[tuple[int, bytes]]

_IPV4 = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2")
_IPV6 = bytes(15) + b"\x01" + bytes(15) + b"\x02"
TIMESTAMPS = b"\x01\x01\x08\x0a" + bytes(8)
"""Options of a TCP header, as most connections have them."""
_SEGMENT_BYTES = 1448

LINK_HEADERS: dict[int, Callable[[bytes], bytes]] = {
    1: lambda ethertype: bytes(12) + ethertype,
    0: lambda _: struct.pack("=I", 2),
    108: lambda _: struct.pack("!I", 2),
    101: lambda _: b"",
    12: lambda _: b"",
    228: lambda _: b"",
    113: lambda ethertype: struct.pack("!HHH8s", 4, 1, 6, bytes(8)) + ethertype,
    276: lambda ethertype: ethertype + struct.pack("!HIHBB8s", 0, 2, 1, 4, 6, bytes(8)),
}
"""The header before an IP packet, by link type."""


def udp_packet(payload: bytes, number: int, port: int = 9000) -> bytes:
    """A packet of UDP over IPv4."""
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), number % 65536, 0, 64, 17, 0) + _IPV4
    return ip + struct.pack("!HHHH", 5000, port, 8 + len(payload), 0) + payload


def tcp_packet(
    payload_bytes: int, sequence: int, *, options: bytes = TIMESTAMPS, flags: int = 0x10, version: int = 4
) -> bytes:
    """A packet of TCP, as its host hands it over: it may be larger than a frame. Its payload is zeros."""
    own_bytes = 20 + len(options)
    tcp = struct.pack("!HHIIBBHHH", 5000, 9000, sequence % 2**32, 1, own_bytes // 4 << 4, flags, 0, 0, 0) + options
    if version == 6:
        ip = struct.pack("!IHBB", 6 << 28, own_bytes + payload_bytes, 6, 64) + _IPV6
    else:
        total_bytes = 20 + own_bytes + payload_bytes
        ip = struct.pack("!BBHHHBBH", 0x45, 0, total_bytes, sequence % 65521, 0, 64, 6, 0) + _IPV4
    return ip + tcp + bytes(payload_bytes)


def in_frames(packets: Frames, link_type: int = 1) -> list[tuple[int, bytes]]:
    """The same packets with the header of a link type."""
    header = LINK_HEADERS[link_type]
    return [(at_ns, header(b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\x00") + ip) for at_ns, ip in packets]


def pcap(path: Path, frames: Frames, order: str = "<", snap: int = 262_144, link_type: int = 1) -> Path:
    """Write a pcap file with times in nanoseconds."""
    data = [struct.pack(f"{order}IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap, link_type)]
    for at_ns, frame in frames:
        kept = frame[:snap]
        data += [struct.pack(f"{order}IIII", at_ns // 10**9, at_ns % 10**9, len(kept), len(frame)), kept]
    path.write_bytes(b"".join(data))
    return path


def pcapng(path: Path, frames: Frames, snap: int = 262_144, link_type: int = 1) -> Path:
    """Write a pcapng file with times in nanoseconds, and a block of a kind that no reader knows."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    data = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    interface = struct.pack("<HHI", link_type, 0, 0) + struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)
    data += [block(1, interface), block(99, b"unknown")]
    for at_ns, frame in frames:
        kept = frame[:snap]
        times = at_ns >> 32, at_ns & 0xFFFFFFFF
        data.append(block(6, struct.pack("<IIIII", 0, *times, len(kept), len(frame)) + kept))
    path.write_bytes(b"".join(data))
    return path


def both_ends(log: PacketLog) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """The packets of a log at its sending and at its receiving end: of TCP, as many segments as their sizes are."""
    sent, arrived, sequence = [], [], 1
    for at_ns, size_bytes, arrival_ns in zip(log.send_ns, log.size_bytes, log.arrival_ns, strict=True):
        segments = -(-int(size_bytes) // (_SEGMENT_BYTES + 66))
        payload_bytes = int(size_bytes) - 66 * segments
        packet = tcp_packet(payload_bytes, sequence)
        sequence += payload_bytes
        sent.append((START_NS + int(at_ns), packet))
        if arrival_ns != LOST_NS:
            arrived.append((START_NS + int(arrival_ns), packet))
    return sent, sorted(arrived, key=lambda each: each[0])


def probe_arrivals(log: PacketLog) -> list[tuple[int, bytes]]:
    """The packets of a log at its receiving end, as those of a wanbed probe."""
    rows = enumerate(zip(log.send_ns, log.size_bytes, log.arrival_ns, strict=True))
    arrived = [
        (START_NS + int(arrival_ns), number, START_NS + int(send_ns), int(size_bytes))
        for number, (send_ns, size_bytes, arrival_ns) in rows
        if arrival_ns != LOST_NS
    ]
    return [
        (at_ns, udp_packet(pack_probe(number, sent_ns) + bytes(size - FRAME_HEADER_BYTES - PROBE_BYTES), number))
        for at_ns, number, sent_ns, size in sorted(arrived)
    ]
