"""Captures of both ends, or of a probe's receiving end, give the log that was sent."""

import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ground.strict_model import InputError
from runner.learnt_links.logs.log_file import read_log
from runner.learnt_links.logs.packet_log import LOST_NS
from runner.learnt_links.logs.probe_packet import pack_probe

START_NS = 1_700_000_000_123_456_789
Frames = Iterable[tuple[int, bytes]]


def udp_frame(payload: bytes, number: int, port: int = 9000) -> bytes:
    ends = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2")
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), number, 0, 64, 17, 0) + ends
    return bytes(12) + b"\x08\x00" + ip + struct.pack("!HHHH", 5000, port, 8 + len(payload), 0) + payload


def tcp_frame(sequence: int, payload: bytes) -> bytes:
    ends = bytes(15) + b"\x01" + bytes(15) + b"\x02"
    ip = struct.pack("!IHBB", 6 << 28, 20 + len(payload), 6, 64) + ends
    return bytes(12) + b"\x81\x00\x00\x05\x86\xdd" + ip + struct.pack(
        "!HHIIBBHHH", 5000, 9000, sequence, 1, 5 << 4, 0, 0, 0, 0
    ) + payload  # fmt: skip


def pcap(path: Path, frames: Frames, order: str = "<", snap: int = 262_144) -> Path:
    """Write a pcap file with times in nanoseconds."""
    data = struct.pack(f"{order}IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap, 1)
    for at_ns, frame in frames:
        kept = frame[:snap]
        data += struct.pack(f"{order}IIII", at_ns // 10**9, at_ns % 10**9, len(kept), len(frame)) + kept
    path.write_bytes(data)
    return path


def pcapng(path: Path, frames: Frames) -> Path:
    """Write a pcapng file with times in nanoseconds, and a block of a kind that no reader knows."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(1, struct.pack("<HHI", 1, 0, 0) + struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)) + block(99, b"unknown")
    for at_ns, frame in frames:
        data += block(6, struct.pack("<IIIII", 0, at_ns >> 32, at_ns & 0xFFFFFFFF, len(frame), len(frame)) + frame)
    path.write_bytes(data)
    return path


def probe_frames(lost: set[int], count: int = 10) -> list[tuple[int, bytes]]:
    """A probe's packets as they arrive 40 ms after they are sent, one each millisecond."""
    sent = {number: START_NS + number * 10**6 for number in range(count) if number not in lost}
    return [(at + 40_000_000, udp_frame(pack_probe(number, at) + bytes(50), number)) for number, at in sent.items()]


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_a_probes_receiving_end_is_a_log_alone(tmp_path: Path, write: Callable[[Path, Frames], Path]) -> None:
    log = read_log(write(tmp_path / "west.pcap", probe_frames({3, 4})))
    assert log.send_ns.tolist() == [number * 10**6 for number in range(10)]
    assert [number for number, at in enumerate(log.arrival_ns) if at == LOST_NS] == [3, 4]
    assert set(log.delay_ns.tolist()) == {40_000_000}
    assert set(log.size_bytes.tolist()) == {42 + 28 + 50}


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_ends_are_matched_packet_by_packet(tmp_path: Path, order: str) -> None:
    frames = [udp_frame(bytes(100), number) for number in range(20)]
    sent = [(START_NS + number * 10**6, frame) for number, frame in enumerate(frames)]
    other = [(START_NS + 5, udp_frame(bytes(20), 7, port=53))]
    arrived = [(at + 30_000_000 + number, frame) for number, (at, frame) in enumerate(sent) if number != 5]
    east = pcap(tmp_path / "east.pcap", [*other, *sent], order, snap=96)
    west = pcap(tmp_path / "west.pcap", arrived[:15], order, snap=96)
    log = read_log(east, west)
    # What was sent after the last packet that arrived may only be missing from the capture.
    assert len(log) == 16
    assert lost_numbers(log.arrival_ns.tolist()) == [5]
    assert log.delay_ns.tolist() == [30_000_000 + number for number in range(16) if number != 5]


def lost_numbers(arrivals: list[int]) -> list[int]:
    return [number for number, at in enumerate(arrivals) if at == LOST_NS]


def test_a_flow_of_tcp_over_ipv6_is_matched_by_its_sequence_numbers(tmp_path: Path) -> None:
    sent = [(START_NS + number * 1000, tcp_frame(number * 100, bytes(100))) for number in range(8)]
    acknowledgement = [(START_NS, tcp_frame(0, b""))]
    west = pcap(tmp_path / "west.pcap", [(at + 10_000, frame) for at, frame in sent])
    log = read_log(pcap(tmp_path / "east.pcap", [*acknowledgement, *sent]), west)
    assert len(log) == 8
    assert set(log.delay_ns.tolist()) == {10_000}


def test_a_capture_that_ends_within_a_packet_is_read_up_to_there(tmp_path: Path) -> None:
    path = pcap(tmp_path / "west.pcap", probe_frames(set()))
    path.write_bytes(path.read_bytes()[:-10])
    assert len(read_log(path)) == 9


def test_times_of_two_clocks_are_refused(tmp_path: Path) -> None:
    sent = [(START_NS + number, udp_frame(bytes(9), number)) for number in range(5)]
    west = pcap(tmp_path / "west.pcap", [(at - 7, frame) for at, frame in sent])
    with pytest.raises(InputError, match=r"east.pcap: packet 1 of the flow arrives before it is sent: relate the clo"):
        read_log(pcap(tmp_path / "east.pcap", sent), west)


def test_a_damaged_length_is_refused_with_its_packet(tmp_path: Path) -> None:
    path = pcap(tmp_path / "west.pcap", probe_frames(set(), 2))
    data = bytearray(path.read_bytes())
    data[24 + 8 : 24 + 12] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"west.pcap: packet 1 claims 2147483647 bytes: the file is damaged"):
        read_log(path)


def test_a_capture_without_probes_needs_the_other_end(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"east.pcap: has no packets of wanbed probe .* --receiver"):
        read_log(pcap(tmp_path / "east.pcap", [(START_NS, udp_frame(bytes(60), 1))]))


def test_captures_of_different_traffic_are_refused(tmp_path: Path) -> None:
    east = pcap(tmp_path / "east.pcap", [(START_NS, udp_frame(bytes(60), 1))])
    west = pcap(tmp_path / "west.pcap", [(START_NS, udp_frame(bytes(60), 1, port=1))])
    with pytest.raises(InputError, match=r"no TCP or UDP flow of it is in .*west.pcap"):
        read_log(east, west)
