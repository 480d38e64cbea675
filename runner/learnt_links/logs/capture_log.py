"""Make a log of packets of captures: of both ends, or of a probe's receiving end alone.

Packets of the two captures are matched by their flow, their identifier in IPv4, their numbers in TCP and the beginning
of their payload. Both captures must be of clocks that agree.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wanbed.ground.strict_model import InputError
from wanbed.runner.learnt_links.logs.capture_file import LATEST_NS, CapturedPacket, captured_packets
from wanbed.runner.learnt_links.logs.captured_flow import LINK_TYPES, MTU_BYTES, Flow, flow_packet, wire_bytes
from wanbed.runner.learnt_links.logs.packet_log import LOST_NS, PacketFaultError, PacketLog, from_first
from wanbed.runner.learnt_links.logs.probe_packet import PROBE_BYTES, unpack_probe

_IP_PROTOCOLS = {6: "TCP", 17: "UDP"}
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
        seen = flow_packet(packet)
        probe = None if seen is None else unpack_probe(seen.payload)
        if seen is not None and probe is not None and probe.sent_ns <= LATEST_NS:
            found.setdefault(probe.number, (probe.sent_ns, seen.wire_bytes(MTU_BYTES), packet.at_ns))
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


def _readable(path: Path) -> Iterator[CapturedPacket]:
    """Yield the packets of a capture. Raise InputError if all are of link types that are not read."""
    link_types = set()
    for packet in captured_packets(path):
        link_types.add(packet.link_type)
        yield packet
    if link_types and link_types.isdisjoint(LINK_TYPES):
        raise InputError(
            f"{path}: its packets have the link type {min(link_types)}, and Ethernet, raw IP, loopback and Linux's "
            "cooked captures are read: capture on another interface, or with tcpdump -i any"
        )


def _by_flow(path: Path) -> dict[Flow, list["_Captured"]]:
    """Return every packet with payload, by flow, in order of time.

    The largest packet of a flow is that of its SYN and of the one that answers, 1,500 bytes where neither was captured.
    """
    found: dict[Flow, list[_Captured]] = defaultdict(list)
    mtus_bytes: dict[Flow, int] = {}
    for packet in _readable(path):
        seen = flow_packet(packet)
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


def _text(flow: Flow) -> str:
    source, destination, protocol, source_port, destination_port = flow
    ends = [".".join(map(str, each)) if len(each) == 4 else each.hex(":", 2) for each in (source, destination)]
    return f"{_IP_PROTOCOLS[protocol]} {ends[0]} {source_port} to {ends[1]} {destination_port}"
