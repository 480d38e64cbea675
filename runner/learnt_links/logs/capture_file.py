"""Read the packets of a capture: a pcap file, with times in micro- or nanoseconds, or a pcapng file.

The formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. No library: scapy is the best kept one,
but has the GPL and dissects whole packets at some 50 us each; dpkt has had no release since 2022.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from wanbed.ground.files.atomic_write import naming
from wanbed.ground.files.regular_file import regular_file
from wanbed.ground.strict_model import InputError

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
LATEST_NS = 2**62
"""The latest time that a packet may have, in 2116."""


@dataclass(frozen=True)
class CapturedPacket:
    """A packet: when it was captured, its link type, its length on the wire, and as much of it as was kept."""

    at_ns: int
    link_type: int
    wire_bytes: int
    kept: bytes


def is_capture(beginning: bytes) -> bool:
    """Return whether a file with these first four bytes is a capture."""
    return beginning in _PCAP or beginning == _PCAPNG


def captured_packets(path: Path) -> Iterator[CapturedPacket]:
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


def _pcap(path: Path, file: BinaryIO, order: str, fraction_ns: int) -> Iterator[CapturedPacket]:
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
        yield CapturedPacket(seconds * 10**9 + fraction * fraction_ns, link_type, wire_bytes, kept)


def _pcapng(path: Path, file: BinaryIO) -> Iterator[CapturedPacket]:
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
            if at_ns > LATEST_NS:
                raise InputError(f"{path}: block {number} is of a time after 2116: the file is damaged, capture again")
            yield CapturedPacket(at_ns, link_type, wire_bytes, body[20 : 20 + kept_bytes])


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
