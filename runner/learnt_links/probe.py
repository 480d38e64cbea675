"""Probe a path with UDP packets, and write the log of it: when each was sent, its size, and when it arrived.

One end receives, the other sends and writes the log. A TCP connection between them, on the same port number, says when
it is over and carries the arrival times back. Each packet begins with a mark, its number and the time of its sending,
so that a capture at the receiving end is a log as well. Both ends must share a clock: hosts of a testbed on one machine
do.

Single packets at random times see the queue as time does; trains, faster than any bottleneck, show its rate and fill
its buffer.
"""

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.ground.files import written_whole
from wanbed.runner.learnt_links.csv_log import HEADER

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
    """Return the number and the time in a packet's payload, None if it is no probe's."""
    if len(payload) < PROBE_BYTES or not payload.startswith(_MARK):
        return None
    _, number, sent_ns = _PACKET.unpack_from(payload)
    return ProbePacket(number, sent_ns)


_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_ARRIVAL = struct.Struct("!IQ")
_END = b"end\n"

_QUIET_S = 2.0
"""The receiver waits until no packet has come for so long: longer than any queue that a probe fills."""

_CONNECT_S = 10.0
_RETRY_S = 0.1
_BUFFER_BYTES = 8 * 2**20
_SO_RCVBUFFORCE = 33


@dataclass(frozen=True)
class ProbePattern:
    """The packets that a probe sends: single packets at exponential gaps, and trains sent at once.

    ``size_bytes`` is the size of a frame on Ethernet, headers included.
    """

    seconds: float
    packets_per_s: float
    size_bytes: int
    train_packets: int
    train_every_s: float
    seed: int

    def times_s(self) -> Iterator[float]:
        """Yield when each packet is due, counted from the start, in order."""
        draw = random.Random(self.seed)  # noqa: S311 - gaps between packets are no secret
        single_s, train_s = draw.expovariate(self.packets_per_s), self.train_every_s / 2
        while min(single_s, train_s) < self.seconds:
            if single_s < train_s or not self.train_packets:
                yield single_s
                single_s += draw.expovariate(self.packets_per_s)
            else:
                for _ in range(self.train_packets):
                    yield train_s
                train_s += self.train_every_s
            if not self.train_packets:
                train_s = self.seconds


@dataclass(frozen=True)
class ProbeCount:
    """The number of packets that a probe sent, and of those that arrived."""

    sent: int
    arrived: int


def receive_probe(port: int) -> int:
    """Receive the packets of one probe and send their arrival times back. Return how many arrived."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets,
        socket.create_server(("", port), backlog=1) as server,
    ):
        with suppress(OSError):
            packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        packets.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        packets.bind(("", port))
        control, _ = server.accept()
        with control:
            arrivals = _arrivals(packets, control)
            control.sendall(b"".join(_ARRIVAL.pack(number, at_ns) for number, at_ns in arrivals.items()))
    return len(arrivals)


def send_probe(host: str, port: int, pattern: ProbePattern, log: Path) -> ProbeCount:
    """Send a probe to a host where ``receive_probe`` runs, and write its log. Raise InputError if nothing answers."""
    payload = bytes(pattern.size_bytes - FRAME_HEADER_BYTES - PROBE_BYTES)
    sent_ns: list[int] = []
    with (
        written_whole(log) as partial,
        _connected(host, port) as control,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets,
    ):
        address = control.getpeername()
        start_s = time.monotonic()
        for number, due_s in enumerate(pattern.times_s()):
            ahead_s = start_s + due_s - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)
            at_ns = time.time_ns()
            packets.sendto(pack_probe(number, at_ns) + payload, address)
            sent_ns.append(at_ns)
        control.sendall(_END)
        arrivals = dict(_ARRIVAL.iter_unpack(_everything(control)))
        with partial.open("w", encoding="ascii") as file:
            file.write(f"{HEADER}\n")
            for number, at_ns in enumerate(sent_ns):
                arrival = _seconds(arrivals[number]) if number in arrivals else ""
                file.write(f"{_seconds(at_ns)},{pattern.size_bytes},{arrival}\n")
    return ProbeCount(len(sent_ns), len(arrivals))


def _connected(host: str, port: int) -> socket.socket:
    deadline_s = time.monotonic() + _CONNECT_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=_CONNECT_S)
        except OSError as fault:
            if isinstance(fault, socket.gaierror) or time.monotonic() > deadline_s:
                raise InputError(
                    f"{host}: no probe receives there at port {port} ({fault.strerror or 'timed out'}): start wanbed "
                    "probe --receive on that host first"
                ) from None
            time.sleep(_RETRY_S)


def _arrivals(packets: socket.socket, control: socket.socket) -> dict[int, int]:
    """Return when each packet arrived first, by its number, once the sender has ended and none has come for a while."""
    found: dict[int, int] = {}
    packets.settimeout(_QUIET_S)
    control.setblocking(False)
    while True:
        try:
            data, extras, _, _ = packets.recvmsg(65536, 256)
        except TimeoutError:
            with suppress(BlockingIOError):
                if control.recv(len(_END)) in {_END, b""}:
                    control.setblocking(True)
                    return found
            continue
        probe = unpack_probe(data)
        if probe is not None:
            found.setdefault(probe.number, _arrival_ns(extras))


def _arrival_ns(extras: list[tuple[int, int, bytes]]) -> int:
    """Return the time at which the kernel received the packet."""
    for level, kind, value in extras:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(value[: _TIMESPEC.size])
            return int(seconds) * 10**9 + int(nanoseconds)
    return time.time_ns()


def _everything(control: socket.socket) -> bytes:
    control.settimeout(None)
    parts = iter(lambda: control.recv(2**20), b"")
    return b"".join(parts)


def _seconds(at_ns: int) -> str:
    return f"{at_ns // 10**9}.{at_ns % 10**9:09d}"
