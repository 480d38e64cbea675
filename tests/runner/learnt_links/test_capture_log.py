"""Captures of both ends, or of a probe's receiving end, give the log that was sent."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.runner.known_captures import START_NS, Frames, in_frames, pcap, pcapng, tcp_packet, udp_packet
from wanbed.ground.errors import InputError
from wanbed.runner.learnt_links.log_file import read_log
from wanbed.runner.learnt_links.packet_log import LOST_NS
from wanbed.runner.learnt_links.probe import pack_probe


def udp_frame(payload: bytes, number: int, port: int = 9000) -> bytes:
    return framed(udp_packet(payload, number, port))


def tcp_frame(sequence: int, payload_bytes: int) -> bytes:
    """A segment of TCP over IPv6, in a VLAN."""
    frame = framed(tcp_packet(payload_bytes, sequence, options=b"", version=6))
    return frame[:12] + b"\x81\x00\x00\x05" + frame[12:]


def segments(number: int, payload_bytes: int, *, syn_mss: int | None = None) -> bytes:
    """A packet of TCP with timestamps over IPv4, as its host hands it over; or the SYN that names a segment size."""
    if syn_mss is None:
        return framed(tcp_packet(payload_bytes, number))
    return framed(tcp_packet(0, 0, options=b"\x02\x04" + struct.pack("!H", syn_mss) + bytes(8), flags=0x02))


def framed(packet: bytes) -> bytes:
    ((_, frame),) = in_frames([(0, packet)])
    return frame


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
    log = read_log(east, pcap(tmp_path / "west.pcap", arrived[:15], order, snap=96))
    # What was sent after the last packet that arrived may only be missing from the capture.
    assert len(log) == 16
    assert lost_numbers(log.arrival_ns.tolist()) == [5]
    assert log.delay_ns.tolist() == [30_000_000 + number for number in range(16) if number != 5]


def lost_numbers(arrivals: list[int]) -> list[int]:
    return [number for number, at in enumerate(arrivals) if at == LOST_NS]


def test_a_flow_of_tcp_over_ipv6_is_matched_by_its_sequence_numbers(tmp_path: Path) -> None:
    sent = [(START_NS + number * 1000, tcp_frame(number * 100, 100)) for number in range(8)]
    acknowledgement = [(START_NS, tcp_frame(0, 0))]
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


@pytest.mark.parametrize("number", [200, 300_000_000, 2**32 - 1])
def test_numbers_that_no_probe_of_that_size_has_are_refused(tmp_path: Path, number: int) -> None:
    frames = [(START_NS + each, udp_frame(pack_probe(each, START_NS), 1)) for each in (0, number)]
    with pytest.raises(InputError, match=rf"its 2 packets of wanbed probe have numbers from 0 to {number}: it is dam"):
        read_log(pcap(tmp_path / "west.pcap", frames))


def test_a_capture_without_probes_needs_the_other_end(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"east.pcap: has no packets of wanbed probe .* --receiver"):
        read_log(pcap(tmp_path / "east.pcap", [(START_NS, udp_frame(bytes(60), 1))]))


def test_captures_of_different_traffic_are_refused(tmp_path: Path) -> None:
    east = pcap(tmp_path / "east.pcap", [(START_NS, udp_frame(bytes(60), 1))])
    west = pcap(tmp_path / "west.pcap", [(START_NS, udp_frame(bytes(60), 1, port=1))])
    with pytest.raises(InputError, match=r"no TCP or UDP flow of it is in .*west.pcap"):
        read_log(east, west)


def sizes_of(tmp_path: Path, frames: Sequence[bytes], link_type: int = 1) -> list[int]:
    """The sizes in the log of frames that were all captured at both ends."""
    sent = [(START_NS + number * 10**6, frame) for number, frame in enumerate(frames)]
    arrived = [(at + 30_000_000, frame) for at, frame in sent]
    east, west = (
        pcap(tmp_path / f"{name}.pcap", each, link_type=link_type)
        for name, each in zip("ew", (sent, arrived), strict=True)
    )
    return read_log(east, west).size_bytes.tolist()


@pytest.mark.parametrize(
    ("payload_bytes", "size_bytes"),
    [
        *((count * 1448, count * 1514) for count in (1, 2, 10, 44)),
        # The last segment may be short.
        (2 * 1448 + 1, 2 * 1514 + 66 + 1),
    ],
)
def test_a_packet_of_many_segments_was_as_many_frames(tmp_path: Path, payload_bytes: int, size_bytes: int) -> None:
    assert sizes_of(tmp_path, [segments(number, payload_bytes) for number in range(5)]) == [size_bytes] * 5


@pytest.mark.parametrize(("mss", "frames"), [(8960, 1), (1400, 7)])
def test_a_handshake_in_the_capture_says_how_large_segments_are(tmp_path: Path, mss: int, frames: int) -> None:
    # 12 bytes of a segment are options.
    handed_over = [segments(number, frames * (mss - 12)) for number in range(1, 6)]
    assert sizes_of(tmp_path, [segments(0, 0, syn_mss=mss), *handed_over]) == [frames * (mss + 54)] * 5


@pytest.mark.parametrize(("link_type", "header"), [(0, 4), (101, 0), (113, 16), (276, 20)])
def test_sizes_are_those_of_ethernet_frames_whatever_header_the_capture_has(
    tmp_path: Path, link_type: int, header: int
) -> None:
    frames = [bytes(header) + segments(number, 1448)[14:] for number in range(5)]
    assert sizes_of(tmp_path, frames, link_type) == [1514] * 5
