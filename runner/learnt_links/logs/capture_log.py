"""Make a log of packets of captures: of both ends, or of a probe's receiving end alone.

Packets of the two captures are matched by their flow, their identifier in IPv4, their numbers in TCP and the beginning
of their payload. Both captures must be of clocks that agree.
"""

from collections import Counter, defaultdict, deque
from pathlib import Path

import numpy as np

from ground.strict_model import InputError
from runner.learnt_links.logs.capture_file import captured_packets
from runner.learnt_links.logs.captured_flow import MTU_BYTES, Flow, FlowPacket, flow_packet
from runner.learnt_links.logs.packet_log import LOST_NS, PacketFaultError, PacketLog, from_first
from runner.learnt_links.logs.probe_packet import PROBE_BYTES, unpack_probe

_IP_PROTOCOLS = {6: "TCP", 17: "UDP"}
_MOST_NUMBERS_A_PACKET = 100
"""Numbers of a probe for each packet that arrived: of more losses no link is learnt."""


def read_both_captures(sender: Path, receiver: Path) -> PacketLog:
    """Return the log of the largest flow that is in both captures; what only the sender captured was lost.

    What was sent after the last packet that arrived is left out: the receiver's capture may have ended before.
    Raise InputError if no flow is in both, or if a packet arrives before it was sent.
    """
    sent = _by_flow(sender)
    arrived = _by_flow(receiver)
    common = Counter({flow: sum(size for _, size, _ in sent[flow]) for flow in sent if flow in arrived})
    if not common:
        raise InputError(f"{sender}: no TCP or UDP flow of it is in {receiver}: give two captures of the same traffic")
    (flow, _), *_ = common.most_common(1)
    waiting: dict[bytes, deque[int]] = defaultdict(deque)
    for at_ns, _, identity in arrived[flow]:
        waiting[identity].append(at_ns)
    rows = [
        (at_ns, size, waiting[identity].popleft() if waiting.get(identity) else LOST_NS)
        for at_ns, size, identity in sent[flow]
    ]
    last = max((number for number, row in enumerate(rows) if row[2] != LOST_NS), default=-1)
    if last < 0:
        raise InputError(
            f"{sender}: no packet of its largest flow ({_text(flow)}) is in {receiver}: were both running?"
        )
    return _log(sender, rows[: last + 1])


def read_probe_capture(path: Path) -> PacketLog:
    """Return the log of a probe from its receiving end's capture: each packet says when it was sent, and its number.

    A number that is missing was lost. It counts as sent between its neighbours, and as large as the one after it.
    """
    found: dict[int, tuple[int, int, int]] = {}
    for packet in captured_packets(path):
        seen = flow_packet(packet)
        probe = None if seen is None else unpack_probe(seen.payload)
        if seen is not None and probe is not None:
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
    every = np.arange(numbers[0], numbers[-1] + 1)
    after = np.searchsorted(numbers, every)
    arrival_ns = np.where(numbers[after] == every, arrivals_ns[after], LOST_NS)
    between_ns = np.interp(every, numbers, sent_ns - sent_ns[0]).round().astype(np.int64) + sent_ns[0]
    return _checked(path, between_ns, sizes[after], arrival_ns)


def _by_flow(path: Path) -> dict[Flow, list[tuple[int, int, bytes]]]:
    """Return time, size on the wire and identity of every packet with payload, by flow, in order of time.

    The largest packet of a flow is that of its SYN and of the one that answers, 1,500 bytes where neither was captured.
    """
    found: dict[Flow, list[tuple[int, FlowPacket]]] = defaultdict(list)
    mtus_bytes: dict[Flow, int] = {}
    for packet in captured_packets(path):
        seen = flow_packet(packet)
        if seen is None:
            continue
        if seen.mtu_bytes is not None:
            source, destination, protocol, source_port, destination_port = seen.flow
            for flow in (seen.flow, (destination, source, protocol, destination_port, source_port)):
                mtus_bytes[flow] = min(mtus_bytes.get(flow, seen.mtu_bytes), seen.mtu_bytes)
        if seen.payload_bytes:
            found[seen.flow].append((packet.at_ns, seen))
    if not found:
        raise InputError(f"{path}: has no TCP or UDP packet with payload: capture on the interface of the flow")
    return {
        flow: sorted(
            ((at_ns, seen.wire_bytes(mtus_bytes.get(flow, MTU_BYTES)), seen.identity) for at_ns, seen in packets),
            key=lambda each: each[0],
        )
        for flow, packets in found.items()
    }


def _log(path: Path, rows: list[tuple[int, int, int]]) -> PacketLog:
    send_ns, size_bytes, arrival_ns = (np.array(each, dtype=np.int64) for each in zip(*rows, strict=True))
    return _checked(path, send_ns, size_bytes, arrival_ns)


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
