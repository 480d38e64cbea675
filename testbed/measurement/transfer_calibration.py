"""Measure what long flows do not show of a link: short transfers after a pause, several pairs, both directions.

A transfer is timed to the arrival of its last byte. Both ends are sockets of this process in the hosts' namespaces: one
thread sends, receives, and waits for packets, so that it notices their arrival within the time of a system call.

Windows are open, and a pause does not close them, so that a transfer of S bytes takes ``wire bytes / rate + latency``.
On a trunk that its node pairs can fill, as many pairs as fill it start at once: each gets the same share, and all
together get the trunk's rate. With both directions busy, each direction also carries the acknowledgements of the other;
the qdiscs count their bytes. This measurement uses short transfers too: in longer ones, acknowledgements wait behind
data of the other direction and leave gaps, which are caused by TCP and not by the link.
"""

import math
import os
import selectors
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.measurement.bounded_transfer import (
    BUFFER_MAX_BYTES,
    Ends,
    StalledError,
    connected,
    payload_file,
)
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES
from wanbed.testbed.network.goodput import TCP_OVERHEAD_BYTES, tcp_goodput_bps
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.shared_rate import can_bind
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Datacenter

if TYPE_CHECKING:
    from wanbed.testbed.running_testbed import RunningTestbed

PATIENCE_S = 60.0
_PATIENCE_TIMES, _ROUNDS = 10, 20
"""Limit of a transfer: this multiple of its time at the path's rate, and this many round trips for slow start."""
_CHUNK_BYTES = 4 * 2**20
_SLOW_START_TIMES = 4
_SCRATCH = bytearray(4 * 2**20)


def wire_bytes(size_bytes: int, mtu_bytes: int) -> int:
    """Return the wire bytes, Ethernet headers included, of a transfer in full segments."""
    return size_bytes + acknowledgement_bytes(size_bytes, mtu_bytes)


def acknowledgement_bytes(size_bytes: int, mtu_bytes: int) -> int:
    """Return the most wire bytes of a transfer's acknowledgements: headers, one for each segment."""
    header_bytes = ETHERNET_HEADER_BYTES + TCP_OVERHEAD_BYTES
    return header_bytes * math.ceil(size_bytes / (mtu_bytes - TCP_OVERHEAD_BYTES))


@dataclass
class TimedConnection:
    """One TCP connection between two hosts, for one transfer after the other."""

    ends: Ends
    sender: socket.socket
    receiver: socket.socket
    _unsent: int = field(default=0, init=False)
    _missing: int = field(default=0, init=False)

    def begin(self, size_bytes: int) -> None:
        """Begin a transfer of that size."""
        self._unsent = self._missing = size_bytes

    def send(self, payload: int) -> bool:
        """Send as much as the kernel accepts, and return whether something is left to send.

        Raise StalledError if the connection is broken.
        """
        try:
            while self._unsent:
                self._unsent -= os.sendfile(self.sender.fileno(), payload, 0, min(_CHUNK_BYTES, self._unsent))
        except BlockingIOError:
            pass
        except OSError as fault:
            raise self._broken(str(fault)) from None
        return self._unsent > 0

    def receive(self) -> bool:
        """Receive what has arrived, after a selector reported data, and return whether something is missing.

        Raise StalledError if the connection is broken or closed.
        """
        try:
            taken = self.receiver.recv_into(_SCRATCH, len(_SCRATCH), socket.MSG_TRUNC)
        except BlockingIOError:
            return True
        except OSError as fault:
            raise self._broken(str(fault)) from None
        if not taken:
            raise self._broken("the connection was closed")
        self._missing -= taken
        return self._missing > 0

    def _broken(self, reason: str) -> StalledError:
        return StalledError(f"{self.ends}: {reason} while {self._missing} bytes were missing")


@contextmanager
def open_connection(ends: Ends, buffer_bytes: int) -> Iterator[TimedConnection]:
    """Open a connection whose buffers at both ends have that size from the start."""
    with connected(ends, 1, buffer_bytes) as ((sender,), (receiver,)):
        # The last partial segment does not wait for an acknowledgement.
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield TimedConnection(ends, sender, receiver)


def transfers_s(
    connections: Sequence[TimedConnection],
    size_bytes: int | Sequence[int],
    rate_bps: int,
    patience_s: float = PATIENCE_S,
) -> list[float]:
    """Start a transfer of that size on every connection at once; return the seconds to each one's last byte.

    ``size_bytes`` may be one for each connection.
    ``rate_bps`` is the least rate that they share. Raise StalledError if nothing arrives for ``patience_s``, if the
    transfers take many times their time at that rate, or if a connection is closed.
    """
    sizes_bytes = [size_bytes] * len(connections) if isinstance(size_bytes, int) else size_bytes
    mtu_bytes = connections[0].ends.testbed.mtu_bytes
    ideal_s = 8 * sum(wire_bytes(each, mtu_bytes) for each in sizes_bytes) / rate_bps
    limit_s = patience_s + _PATIENCE_TIMES * ideal_s + _ROUNDS * max(each.ends.rtt_s for each in connections)
    with payload_file(_CHUNK_BYTES) as payload, selectors.DefaultSelector() as selector:
        began_ns = time.monotonic_ns()
        ended_ns: dict[int, int] = {}
        for number, connection in enumerate(connections):
            connection.begin(sizes_bytes[number])
            selector.register(connection.receiver, selectors.EVENT_READ, number)
            if connection.send(payload):
                selector.register(connection.sender, selectors.EVENT_WRITE, number)
        while len(ended_ns) < len(connections):
            left_s = limit_s - (time.monotonic_ns() - began_ns) / 1e9
            ready = selector.select(min(patience_s, left_s)) if left_s > 0 else []
            if not ready:
                stalled = next(each for number, each in enumerate(connections) if number not in ended_ns)
                raise StalledError(f"{stalled.ends}: {_late(patience_s, limit_s, left_s)}")
            now_ns = time.monotonic_ns()
            for key, event in ready:
                connection = connections[key.data]
                if event == selectors.EVENT_WRITE:
                    if not connection.send(payload):
                        selector.unregister(key.fileobj)
                elif not connection.receive():
                    ended_ns[key.data] = now_ns
                    selector.unregister(key.fileobj)
    return [(ended_ns[number] - began_ns) / 1e9 for number in range(len(connections))]


def _late(patience_s: float, limit_s: float, left_s: float) -> str:
    if left_s > patience_s:
        return f"nothing arrived in {patience_s:.0f} s"
    return f"a transfer was not done after {limit_s:.0f} s"


def open_windows(
    connections: Sequence[TimedConnection],
    flight_bytes: int,
    rate_bps: int,
    rtt_s: float,
    patience_s: float = PATIENCE_S,
) -> None:
    """Send until slow start has opened every window to ``flight_bytes`` in flight. Raise StalledError on failure.

    Slow start takes twice these bytes for it; the transfer is larger, for a margin.
    """
    transfers_s(connections, _SLOW_START_TIMES * flight_bytes, rate_bps, patience_s)
    # The last acknowledgements open the window too.
    time.sleep(2 * rtt_s)


_SHORT_NS = 16_000_000
"""Time of a short transfer at the line's rate; it fits the queue of a link without latency."""
_SHORT_MIN_BYTES, _SHORT_MAX_BYTES = 16 * 1024, 16 * 2**20
_PAUSES_S = (0.1, 0.05, 0.2)
_TOGETHER_S, _TOGETHER_VIRTUAL_S = 0.4, 0.1
_TOGETHER_MAX_BYTES = 256 * 2**20
_GRAINS = 100
_TOGETHER_MAX_S = 4
"""Longest transfer of node pairs that fill a trunk; see ``together_bytes``."""
_BUFFER_TIMES = 3
"""Receive buffer over bytes in flight: Linux gives 0.5 to 0.7 of the buffer to the window; a queue can hold as much."""
_BUFFER_MIN_BYTES = 256 * 1024
_PAIRS_MAX = 8
_PACKET_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class ComparedFigure:
    """One figure, configured and measured."""

    configured: float
    measured: float

    def converted(self, convert: Callable[[float], float]) -> "ComparedFigure":
        """Return both in another unit."""
        return ComparedFigure(convert(self.configured), convert(self.measured))

    @property
    def in_ms(self) -> "ComparedFigure":
        """A time in seconds, in milliseconds."""
        return self.converted(lambda seconds: 1e3 * seconds)


@dataclass(frozen=True)
class TransferMeasurement:
    """The times of short transfers and the goodputs of node pairs that fill a trunk.

    ``figures`` has those that were measured, by their columns in calibration: ``short_ms`` is the time of a short
    transfer, ``both_ways_ms`` the same while the other direction is busy. ``share_bps`` is the goodput of the pair
    farthest from its share, ``together_bps`` that of all pairs; they are missing if no pairs can fill the trunk, and
    where there is too little time to tell a wrong rate from whole packets (``together_bytes``). ``burst_bytes`` is what
    the trunk sent at once beyond its rate, None if no pairs can fill it.
    """

    figures: Mapping[str, ComparedFigure]
    burst_bytes: int | None = None


def measure_transfers(
    testbed: "RunningTestbed",
    datacenters: tuple[Datacenter, Datacenter],
    hosts: tuple[str, str],
    conditions: LinkConditions,
    back: LinkConditions,
    *,
    rate_bps: int,
) -> TransferMeasurement:
    """Measure the path from one host to another, and the trunk from one's datacenter to the other's.

    ``rate_bps`` is that of the path; ``back`` has the conditions of the other direction. Neither may have impairments.
    The hosts' TCP settings are left changed. Raise StalledError if a transfer stalls.
    """
    # Without HyStart, which mistakes the bursts of slow start for a full queue.
    testbed.use_tcp(TcpSettings(congestion="reno", slow_start_after_idle=False))
    rtt_s = (conditions.latency_ns + back.latency_ns) / 1e9
    path = _Path(testbed, conditions, rate_bps, rtt_s)
    with ExitStack() as held:
        (there,) = path.opened(held, [hosts])
        short_s = path.short([there], rate_bps)
        figures = {"short_ms": short_s.in_ms}
        if datacenters[0] is datacenters[1]:
            return TransferMeasurement(figures)
        path_back = _Path(testbed, back, back.pair_rate_bps or rate_bps, rtt_s)
        (other,) = path_back.opened(held, [hosts[::-1]])
        figures["both_ways_ms"] = path.both_ways(there, other, path_back).in_ms
    trunk_bps, pairs = conditions.rate_bps, filling_pairs(*datacenters, conditions, testbed.topology.intra_rate_bps)
    if trunk_bps is None or not pairs:
        return TransferMeasurement(figures)
    with ExitStack() as held:
        connections = path.opened(held, pairs)
        burst_bytes = path.burst_bytes(connections, trunk_bps)
        shares = path.shares(connections, trunk_bps, _grain_bytes(testbed, datacenters, len(pairs)))
        return TransferMeasurement({**figures, **shares}, burst_bytes)


def filling_pairs(
    here: Datacenter, there: Datacenter, conditions: LinkConditions, port_bps: int | None
) -> list[tuple[str, str]]:
    """Return the fewest node pairs that can fill the trunk, on different hosts if possible; none if they cannot.

    The destination ports, of ``port_bps`` each, must not limit the pairs' shares: otherwise the ports fill, not the
    trunk.
    """
    pairs = spread_pairs(*([host.name for host in each.hosts] for each in (here, there)))
    for count in range(2, min(len(pairs), _PAIRS_MAX) + 1):
        if conditions.rate_bps and can_bind(conditions.rate_bps, [conditions.pair_rate_bps] * count):
            (_, busiest), *_ = Counter(destination for _, destination in pairs[:count]).most_common(1)
            if port_bps is None or port_bps * count >= busiest * conditions.rate_bps:
                return pairs[:count]
    return []


def spread_pairs(sources: Sequence[str], destinations: Sequence[str]) -> list[tuple[str, str]]:
    """Return every node pair once, in diagonal order, so that consecutive pairs are on different hosts."""
    lap = math.lcm(len(sources), len(destinations))
    return [
        (sources[step % len(sources)], destinations[(step + step // lap) % len(destinations)])
        for step in range(len(sources) * len(destinations))
    ]


def windows_bytes(short_bytes: int, rate_bps: int, rtt_s: float) -> tuple[int, int]:
    """Return the bytes to have in flight and the buffer size for them.

    In flight is the larger of a short transfer and the bandwidth-delay product, within TCP's limit.
    """
    flight_bytes = min(BUFFER_MAX_BYTES // _BUFFER_TIMES, max(short_bytes, math.ceil(rtt_s * rate_bps / 8)))
    return flight_bytes, max(_BUFFER_MIN_BYTES, _BUFFER_TIMES * flight_bytes)


def together_bytes(trunk_bps: int, short_bytes: int, grain_bytes: int) -> int | None:
    """Return how many bytes the node pairs that fill a trunk send in all.

    It is many times ``grain_bytes``, which the trunk handles in one piece, so that this granularity alone puts no
    figure out of tolerance. Return None if that would take longer than ``_TOGETHER_MAX_S``.
    """
    least_bytes = _GRAINS * grain_bytes
    if 8 * least_bytes > _TOGETHER_MAX_S * trunk_bps:
        return None
    seconds = _TOGETHER_VIRTUAL_S if in_virtual_time() else _TOGETHER_S
    return max(least_bytes, min(_TOGETHER_MAX_BYTES, max(4 * short_bytes, round(trunk_bps * seconds / 8))))


def _grain_bytes(testbed: "RunningTestbed", datacenters: tuple[Datacenter, Datacenter], pairs: int) -> int:
    """Return the bytes that a trunk handles in one piece: a packet of each other pair, or its bucket if larger."""
    here, there = (each.name for each in datacenters)
    gateway = next(each for each in testbed.gateway_plan.gateways if each.datacenter == here)
    trunks = next(port.trunks for port in gateway.wan_ports if port.peer == there)
    frames = gateway.super_packet_frames
    packet_bytes = _PACKET_MAX_BYTES if frames is None else frames * (testbed.mtu_bytes + ETHERNET_HEADER_BYTES)
    buckets_bytes = (trunk.rate_bytes_per_s * trunk.burst_us // 10**6 for trunk in trunks if trunk is not None)
    bucket_bytes = max(buckets_bytes, default=0)
    return max((pairs - 1) * packet_bytes, bucket_bytes)


class _Path:
    def __init__(self, testbed: "RunningTestbed", conditions: LinkConditions, rate_bps: int, rtt_s: float) -> None:
        self._testbed = testbed
        self._rate_bps = rate_bps
        self._latency_s, self._rtt_s = conditions.latency_ns / 1e9, rtt_s
        self._short_bytes = min(_SHORT_MAX_BYTES, max(_SHORT_MIN_BYTES, rate_bps * _SHORT_NS // (8 * 10**9)))
        # On a slow link nothing arrives for as long as a packet of each pair takes.
        self._patience_s = PATIENCE_S + _PAIRS_MAX * 8 * _PACKET_MAX_BYTES / rate_bps + 2 * rtt_s
        self._flight_bytes, self._buffer_bytes = windows_bytes(self._short_bytes, rate_bps, rtt_s)

    def _wire_bytes(self, size_bytes: int) -> int:
        return wire_bytes(size_bytes, self._testbed.mtu_bytes)

    def opened(self, held: ExitStack, pairs: Sequence[tuple[str, str]]) -> list[TimedConnection]:
        """Open a connection for each node pair, and open its window."""
        ends = [Ends(self._testbed, *pair) for pair in pairs]
        connections = [held.enter_context(open_connection(each, self._buffer_bytes)) for each in ends]
        open_windows(connections, self._flight_bytes, self._rate_bps, self._rtt_s, self._patience_s)
        return connections

    def short(self, connections: Sequence[TimedConnection], rate_bps: int) -> ComparedFigure:
        """Time short transfers that begin at once after a pause, to the last one's end; the median over some pauses.

        ``rate_bps`` is what all of them have together.
        """
        measured_s = []
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            measured_s.append(max(transfers_s(connections, self._short_bytes, self._rate_bps, self._patience_s)))
        configured_s = 8 * len(connections) * self._wire_bytes(self._short_bytes) / rate_bps + self._latency_s
        return ComparedFigure(configured_s, statistics.median(measured_s))

    def both_ways(self, there: TimedConnection, back: TimedConnection, path_back: "_Path") -> ComparedFigure:
        """Time a transfer of ``there`` as ``short`` does, while ``back`` sends as much in the other direction.

        On a slower way back, it sends less, for the same time.
        """
        slower = min(1.0, path_back._rate_bps / self._rate_bps)
        sizes_bytes = [self._short_bytes, max(1, round(self._short_bytes * slower))]
        least_bps = min(self._rate_bps, path_back._rate_bps)
        patience_s = max(self._patience_s, path_back._patience_s)
        configured_s, measured_s = [], []
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            before = self._counted_bytes(there.ends)
            measured_s.append(transfers_s([there, back], sizes_bytes, least_bps, patience_s)[0])
            counted = self._counted_bytes(there.ends) - before
            # The count includes acknowledgements after the last byte, so it is bounded by those of one transfer.
            own_bytes = self._wire_bytes(self._short_bytes)
            carried = min(counted, own_bytes + acknowledgement_bytes(sizes_bytes[1], self._testbed.mtu_bytes))
            configured_s.append(8 * max(carried, own_bytes) / self._rate_bps + self._latency_s)
        return ComparedFigure(statistics.median(configured_s), statistics.median(measured_s))

    def burst_bytes(self, connections: Sequence[TimedConnection], trunk_bps: int) -> int:
        """Measure what the trunk sends at once beyond its rate, by node pairs that fill it."""
        at_once_s = self.short(connections, trunk_bps)
        return max(0, round((at_once_s.configured - at_once_s.measured) * trunk_bps / 8))

    def shares(
        self, connections: Sequence[TimedConnection], trunk_bps: int, grain_bytes: int
    ) -> dict[str, ComparedFigure]:
        """Measure the shares of node pairs that fill the trunk; return nothing if that would take too long."""
        total_bytes = together_bytes(trunk_bps, self._short_bytes, grain_bytes)
        if total_bytes is None:
            return {}
        size_bytes = total_bytes // len(connections)
        taken_s = transfers_s(connections, size_bytes, trunk_bps, self._patience_s)
        share_bps = tcp_goodput_bps(trunk_bps / len(connections), self._testbed.mtu_bytes)
        farthest_bps = max(
            (self._pace_bps(size_bytes, each) for each in taken_s), key=lambda pace_bps: abs(pace_bps - share_bps)
        )
        together_bps = self._pace_bps(size_bytes * len(connections), max(taken_s))
        return {
            "share_bps": ComparedFigure(share_bps, farthest_bps),
            "together_bps": ComparedFigure(share_bps * len(connections), together_bps),
        }

    def _pace_bps(self, size_bytes: int, taken_s: float) -> float:
        return 8 * size_bytes / max(1e-9, taken_s - self._latency_s)

    def _counted_bytes(self, ends: Ends) -> int:
        return next(
            port.pairs[ends.source, ends.destination].wire_bytes
            for port in self._testbed.read_counters()
            if (ends.source, ends.destination) in port.pairs
        )
