"""Make a log of packets of captures: of both ends, or of a probe's receiving end alone.

A capture is a pcap file, with times in micro- or nanoseconds, or a pcapng file (draft-ietf-opsawg-pcap and
draft-ietf-opsawg-pcapng). No library reads it: scapy is the best kept one, but has the GPL and dissects whole packets
at some 50 us each; dpkt has had no release since 2022.

Packets of the two captures are matched by their flow, their identifier in IPv4, their numbers in TCP and the beginning
of their payload. Both captures must be of clocks that agree.
"""

import math
import struct
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from wanbed.ground.errors import InputError
from wanbed.ground.files import naming, regular_file
from wanbed.runner.learnt_links.packet_log import LOST_NS, PacketFaultError, PacketLog, from_first
from wanbed.runner.learnt_links.probe import PROBE_BYTES, unpack_probe

_PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
"""Byte order and nanoseconds of a fraction, by a pcap file's first bytes."""

_PCAPNG = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_SECTION, _INTERFACE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 3, 6
_TSRESOL = 9
_MAX_BLOCK_BYTES = 2**24
_LINK_TYPE_BITS = 0x0FFFFFFF

_LATEST_NS = 2**62
"""The latest time that a packet may have, in 2116."""


@dataclass(frozen=True)
class _CapturedPacket:
    """A packet: when it was captured, its link type, its length on the wire, and as much of it as was kept."""

    at_ns: int
    link_type: int
    wire_bytes: int
    kept: bytes


def is_capture(beginning: bytes) -> bool:
    """Return whether a file with these first four bytes is a capture."""
    return beginning in _PCAP or beginning == _PCAPNG


def captured_packets(path: Path) -> Iterator[_CapturedPacket]:
    """Yield the packets of a capture in the file's order. Raise InputError, with the packet's number, if it is damaged.

    A file that ends within a packet, as that of a killed capture does, is read up to there.
    """
    with naming(path), regular_file(path).open("rb") as file:
        first = file.read(4)
        if first in _PCAP:
            order, fraction_ns = _PCAP[first]
            yield from _pcap(path, file, order, fraction_ns)
        elif first == _PCAPNG:
            file.seek(0)
            yield from _pcapng(path, file)
        else:
            raise InputError(f"{path}: is no capture: give a pcap or pcapng file")


def _pcap(path: Path, file: BinaryIO, order: str, fraction_ns: int) -> Iterator[_CapturedPacket]:
    header = file.read(20)
    if len(header) < 20:
        raise InputError(f"{path}: ends within its header: capture again")
    link_type = struct.unpack(f"{order}HHiIII", header)[-1] & _LINK_TYPE_BITS
    record = struct.Struct(f"{order}IIII")
    number = 0
    while len(head := file.read(record.size)) == record.size:
        number += 1
        seconds, fraction, kept_bytes, wire_bytes = record.unpack(head)
        if kept_bytes > _MAX_BLOCK_BYTES:
            raise InputError(f"{path}: packet {number} claims {kept_bytes} bytes: the file is damaged, capture again")
        kept = file.read(kept_bytes)
        if len(kept) < kept_bytes:
            return
        yield _CapturedPacket(seconds * 10**9 + fraction * fraction_ns, link_type, wire_bytes, kept)


def _pcapng(path: Path, file: BinaryIO) -> Iterator[_CapturedPacket]:
    order, interfaces, number = "<", list[tuple[int, int]](), 0
    while len(head := file.read(8)) == 8:
        if head[:4] == _PCAPNG:
            magic = file.read(4)
            if magic not in _BYTE_ORDERS:
                raise InputError(f"{path}: block {number + 1} has no byte order: the file is damaged, capture again")
            order, interfaces = _BYTE_ORDERS[magic], []
            file.seek(-4, 1)
        kind, length = struct.unpack(f"{order}II", head)
        number += 1
        if length < 12 or length % 4 or length > _MAX_BLOCK_BYTES:
            raise InputError(f"{path}: block {number} claims {length} bytes: the file is damaged, capture again")
        body = file.read(length - 8)[:-4]
        if len(body) < length - 12:
            return
        if kind == _INTERFACE:
            interfaces.append((struct.unpack_from(f"{order}H", body)[0], _ticks_a_second(body[8:], order)))
        elif kind == _SIMPLE:
            raise InputError(f"{path}: block {number} is a packet without a time: capture with times")
        elif kind == _ENHANCED:
            if len(body) < 20:
                raise InputError(f"{path}: block {number} is too short: the file is damaged, capture again")
            interface, high, low, kept_bytes, wire_bytes = struct.unpack_from(f"{order}IIIII", body)
            if interface >= len(interfaces) or kept_bytes > len(body) - 20:
                raise InputError(f"{path}: block {number} does not fit: the file is damaged, capture again")
            link_type, ticks = interfaces[interface]
            at_ns = ((high << 32) | low) * 10**9 // ticks
            if at_ns > _LATEST_NS:
                raise InputError(f"{path}: block {number} is of a time after 2116: the file is damaged, capture again")
            yield _CapturedPacket(at_ns, link_type, wire_bytes, body[20 : 20 + kept_bytes])


def _ticks_a_second(options: bytes, order: str) -> int:
    """Return the resolution of an interface's times: that of its option if_tsresol, else microseconds."""
    place = 0
    while place + 4 <= len(options):
        code, length = struct.unpack_from(f"{order}HH", options, place)
        if code == _TSRESOL and length == 1 and place + 4 < len(options):
            value = options[place + 4]
            return int(2 ** (value & 0x7F)) if value & 0x80 else int(10 ** (value & 0x7F))
        if code == 0:
            break
        place += 4 + length + (-length) % 4
    return 10**6


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
"""The bytes before IP, by link types that are read: Ethernet, loopback, raw IP, and Linux's cooked captures."""

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

_Flow = tuple[bytes, bytes, int, int, int]
"""Source and destination address, protocol, source and destination port."""


@dataclass(frozen=True)
class _FlowPacket:
    """A TCP or UDP packet: its flow, what identifies it at both ends, the payload kept, and its payload's size.

    ``header_bytes`` are those of IP and of TCP or UDP. ``mtu_bytes`` is the largest IP packet that the sender of a SYN
    takes, None in any other packet.
    """

    flow: _Flow
    identity: bytes
    payload: bytes
    payload_bytes: int
    header_bytes: int
    mtu_bytes: int | None


def wire_bytes(payload_bytes: int, header_bytes: int, mtu_bytes: int) -> int:
    """Return the size of a packet's Ethernet frames, without preamble and checksum, whatever header the capture has.

    Hosts that leave segmentation to the network card hand over, and capture, many frames as one packet.
    """
    frames = max(1, math.ceil(payload_bytes / (mtu_bytes - header_bytes)))
    return payload_bytes + frames * (_ETHERNET_BYTES + header_bytes)


def _flow_packet(packet: _CapturedPacket) -> _FlowPacket | None:
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
    return _FlowPacket(flow, identity, payload, max(0, length - header - own), header + own, mtu_bytes)


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


_IP_PROTOCOLS = {_TCP: "TCP", _UDP: "UDP"}

_MOST_NUMBERS_A_PACKET = 20
"""Numbers of a probe for each packet that arrived: of more losses no link is learnt."""

_MOST_CUT_OTHERWISE = 0.001
"""The fraction of packets that may have another size where they arrive: a packet that TCP sent again, cut otherwise."""


class _Captured(NamedTuple):
    """The capture time of a flow's packet, its identity, and its sizes. ``wire_bytes`` is set once the MTU is known.

    A capture may have millions of packets, so nothing else of the packet is kept.
    """

    at_ns: int
    identity: bytes
    payload_bytes: int
    header_bytes: int
    wire_bytes: int = 0


def read_both_captures(sender: Path, receiver: Path) -> PacketLog:
    """Return the log of the largest flow that is in both captures; what only the sender captured was lost.

    What was sent before the first packet that arrived, or after the last one, is left out: the receiver's capture may
    have begun after the sender's and ended before it. Raise InputError if no flow is in both, if the two cut it into
    different packets, or if a packet arrives before it was sent.
    """
    sent = _by_flow(sender)
    arrived = _by_flow(receiver)
    common = Counter({flow: sum(each.payload_bytes for each in sent[flow]) for flow in sent if flow in arrived})
    if not common:
        raise InputError(f"{sender}: no TCP or UDP flow of it is in {receiver}: give two captures of the same traffic")
    (flow, _), *_ = common.most_common(1)
    waiting: dict[bytes, deque[_Captured]] = defaultdict(deque)
    for each in arrived[flow]:
        waiting[each.identity].append(each)
    rows = [(each, waiting[each.identity].popleft() if waiting.get(each.identity) else None) for each in sent[flow]]
    matched = [number for number, (_, there) in enumerate(rows) if there is not None]
    if not matched:
        raise InputError(
            f"{sender}: no packet of its largest flow ({_text(flow)}) is in {receiver}: were both running?"
        )
    others = sum(there is not None and there.payload_bytes != here.payload_bytes for here, there in rows)
    if others > _MOST_CUT_OTHERWISE * len(matched):
        raise InputError(
            f"{receiver}: {others} of {len(matched)} packets of the flow ({_text(flow)}) are larger or smaller than "
            f"where they were sent, since a network card joins or splits them: switch that off at both ends while you "
            "capture, with ethtool -K INTERFACE gro off lro off tso off gso off"
        )
    rows = rows[matched[0] : matched[-1] + 1]
    return _checked(
        sender,
        np.array([here.at_ns for here, _ in rows]),
        np.array([here.wire_bytes for here, _ in rows]),
        np.array([LOST_NS if there is None else there.at_ns for _, there in rows]),
    )


def read_probe_capture(path: Path) -> PacketLog:
    """Return the log of a probe from its receiving end's capture: each packet says when it was sent, and its number.

    A number that is missing was lost. It counts as sent between its neighbours, and as large as the one after it.
    """
    found: dict[int, tuple[int, int, int]] = {}
    for packet in _readable(path):
        seen = _flow_packet(packet)
        probe = None if seen is None else unpack_probe(seen.payload)
        if seen is not None and probe is not None and probe.sent_ns <= _LATEST_NS:
            size_bytes = wire_bytes(seen.payload_bytes, seen.header_bytes, MTU_BYTES)
            found.setdefault(probe.number, (probe.sent_ns, size_bytes, packet.at_ns))
    if not found:
        raise InputError(
            f"{path}: has no packets of wanbed probe with their first {PROBE_BYTES} bytes: give the sending end's "
            "capture, and the other's as --receiver"
        )
    numbers = np.array(sorted(found))
    if numbers[-1] - numbers[0] >= _MOST_NUMBERS_A_PACKET * len(found):
        raise InputError(
            f"{path}: its {len(found)} packets of wanbed probe have numbers from {numbers[0]} to {numbers[-1]}: it is "
            "damaged, or has packets of several probes: capture one of them"
        )
    sent_ns, sizes, arrivals_ns = (np.array(each) for each in zip(*(found[number] for number in numbers), strict=True))
    if len(back := np.flatnonzero(np.diff(sent_ns) < 0)):
        raise InputError(
            f"{path}: packet {numbers[back[0] + 1]} of wanbed probe says that it was sent before packet "
            f"{numbers[back[0]]}: the capture is damaged, a clock was set back, or there are packets of several "
            "probes: capture again"
        )
    every = np.arange(numbers[0], numbers[-1] + 1)
    after = np.searchsorted(numbers, every)
    arrival_ns = np.where(numbers[after] == every, arrivals_ns[after], LOST_NS)
    between_ns = np.interp(every, numbers, sent_ns - sent_ns[0]).round().astype(np.int64) + sent_ns[0]
    return _checked(path, between_ns, sizes[after], arrival_ns)


def _readable(path: Path) -> Iterator[_CapturedPacket]:
    """Yield the packets of a capture. Raise InputError if all are of link types that are not read."""
    link_types = set()
    for packet in captured_packets(path):
        link_types.add(packet.link_type)
        yield packet
    if link_types and link_types.isdisjoint(_LINK_HEADER):
        raise InputError(
            f"{path}: its packets have the link type {min(link_types)}, and Ethernet, raw IP, loopback and Linux's "
            "cooked captures are read: capture on another interface, or with tcpdump -i any"
        )


def _by_flow(path: Path) -> dict[_Flow, list[_Captured]]:
    """Return every packet with payload, by flow, in order of time.

    The largest packet of a flow is that of its SYN and of the one that answers, 1,500 bytes where neither was captured.
    """
    found: dict[_Flow, list[_Captured]] = defaultdict(list)
    mtus_bytes: dict[_Flow, int] = {}
    for packet in _readable(path):
        seen = _flow_packet(packet)
        if seen is None:
            continue
        if seen.mtu_bytes is not None:
            source, destination, protocol, source_port, destination_port = seen.flow
            for flow in (seen.flow, (destination, source, protocol, destination_port, source_port)):
                mtus_bytes[flow] = min(mtus_bytes.get(flow, seen.mtu_bytes), seen.mtu_bytes)
        if seen.payload_bytes:
            found[seen.flow].append(_Captured(packet.at_ns, seen.identity, seen.payload_bytes, seen.header_bytes))
    if not found:
        raise InputError(f"{path}: has no TCP or UDP packet with payload: capture on the interface of the flow")
    return {
        flow: [
            each._replace(wire_bytes=wire_bytes(each.payload_bytes, each.header_bytes, mtus_bytes.get(flow, MTU_BYTES)))
            for each in sorted(packets, key=lambda each: each.at_ns)
        ]
        for flow, packets in found.items()
    }


def _checked(
    path: Path,
    send_ns: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    size_bytes: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    arrival_ns: "np.ndarray[tuple[int], np.dtype[np.int64]]",
) -> PacketLog:
    try:
        return from_first(send_ns, size_bytes, arrival_ns)
    except PacketFaultError as fault:
        raise InputError(f"{path}: packet {fault.row + 1} of the flow {fault}") from None


def _text(flow: _Flow) -> str:
    source, destination, protocol, source_port, destination_port = flow
    ends = [".".join(map(str, each)) if len(each) == 4 else each.hex(":", 2) for each in (source, destination)]
    return f"{_IP_PROTOCOLS[protocol]} {ends[0]} {source_port} to {ends[1]} {destination_port}"
