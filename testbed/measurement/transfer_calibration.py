"""Measure what long flows do not show of a link: short transfers after a pause, several pairs, both directions.

Windows are open, and a pause does not close them, so that a transfer of S bytes takes ``wire bytes / rate + latency``.
Over a trunk that its pairs can fill, as many as fill it start at once: each gets the same share, and all together the
trunk's rate. With both directions busy each also carries the other's acknowledgements; the qdiscs count the bytes that
these take. Both directions use short transfers too: longer ones, whose acknowledgements wait behind the data of the
other way, leave gaps that are TCP's and not the link's.
"""

import math
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.kernel.inside import in_virtual_time
from testbed.measurement.bounded_transfer import BUFFER_MAX_BYTES, SEGMENT_BYTES, Ends
from testbed.measurement.timed_transfers import (
    PATIENCE_S,
    Connection,
    open_connection,
    open_windows,
    transfers_s,
    wire_bytes,
)
from testbed.network.shared_rate import FRAME_BYTES, can_bind
from testbed.network.tcp_settings import TcpSettings
from testbed.network.topology import Datacenter, LinkConditions

if TYPE_CHECKING:
    from testbed.testbed import Testbed

_SHORT_NS = 16_000_000
"""How long the line takes for a short transfer, within what a queue without latency holds."""
_SHORT_MIN_BYTES, _SHORT_MAX_BYTES = 16 * 1024, 16 * 2**20
_PAUSES_S = (0.1, 0.05, 0.2)
_TOGETHER_S, _TOGETHER_VIRTUAL_S = 0.4, 0.1
_TOGETHER_MAX_BYTES = 256 * 2**20
_GRAINS = 100
_TOGETHER_MAX_S = 4
"""Pairs that fill a trunk send many times what it handles in one piece, for no longer than that: see together_bytes."""
_BUFFER_TIMES = 3
"""A receive buffer over what is to be in flight: Linux gives 0.5 to 0.7 of it to the window, and a queue holds that."""
_BUFFER_MIN_BYTES = 256 * 1024
_PAIRS_MAX = 8
_PACKET_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class Compared:
    """One figure, configured and measured."""

    configured: float
    measured: float


@dataclass(frozen=True)
class TransferMeasurement:
    """Seconds of a short transfer, alone and while the other direction is busy; bit/s of pairs that fill a trunk.

    ``share_bps`` is that of the pair farthest from its share, ``together_bps`` all of them; ``burst_bytes`` is what the
    trunk let go at once beyond its rate. None where there is nothing to measure, or too little to distinguish a wrong
    rate from whole packets (``together_bytes``).
    """

    short_s: Compared
    both_ways_s: Compared | None = None
    share_bps: Compared | None = None
    together_bps: Compared | None = None
    burst_bytes: int | None = None


def measure_transfers(
    testbed: "Testbed", datacenters: tuple[Datacenter, Datacenter], hosts: tuple[str, str], conditions: LinkConditions
) -> TransferMeasurement:
    """Measure the path between two hosts, and the trunk between their datacenters.

    The path has a rate, and no impairments. Leaves the hosts' TCP as the measurement needs it. Raises
    StalledError.
    """
    rate_bps = conditions.pair_rate_bps
    assert rate_bps is not None
    # Without hystart, which takes the bursts of slow start for a full queue.
    testbed.use_tcp(TcpSettings(congestion="reno", slow_start_after_idle=False))
    path = _Path(testbed, conditions, rate_bps)
    with ExitStack() as held:
        (there,) = path.opened(held, [hosts])
        short_s = path.short([there])
        if datacenters[0] is datacenters[1]:
            return TransferMeasurement(short_s)
        (back,) = path.opened(held, [hosts[::-1]])
        both_ways_s = path.both_ways(there, back)
    pairs = filling_pairs(*datacenters, conditions, testbed.topology.intra_rate_bps)
    if not pairs:
        return TransferMeasurement(short_s, both_ways_s)
    with ExitStack() as held:
        return path.together(
            path.opened(held, pairs), short_s, both_ways_s, _grain_bytes(testbed, datacenters, len(pairs))
        )


def filling_pairs(
    here: Datacenter, there: Datacenter, conditions: LinkConditions, port_bps: int | None
) -> list[tuple[str, str]]:
    """Return as few node pairs as can fill the trunk, on different hosts where there are; none if they cannot.

    Ports at their ends, of ``port_bps`` each, must let every pair have its share; otherwise the ports fill, not the
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
    """Return every pair once, by diagonals, so that pairs that follow one another are on different hosts."""
    lap = math.lcm(len(sources), len(destinations))
    return [
        (sources[step % len(sources)], destinations[(step + step // lap) % len(destinations)])
        for step in range(len(sources) * len(destinations))
    ]


def windows_bytes(short_bytes: int, rate_bps: int, rtt_s: float) -> tuple[int, int]:
    """Return what is to be in flight, and the buffers for it, in bytes.

    In flight is what the line or a short transfer holds, as far as TCP goes.
    """
    flight_bytes = min(BUFFER_MAX_BYTES // _BUFFER_TIMES, max(short_bytes, math.ceil(rtt_s * rate_bps / 8)))
    return flight_bytes, max(_BUFFER_MIN_BYTES, _BUFFER_TIMES * flight_bytes)


def together_bytes(trunk_bps: int, short_bytes: int, grain_bytes: int) -> int | None:
    """Return how much pairs that fill a trunk send in all.

    It is many times ``grain_bytes``, which the trunk handles in one piece, so that this alone moves no figure out of
    tolerance; None where that takes longer than ``_TOGETHER_MAX_S``.
    """
    least_bytes = _GRAINS * grain_bytes
    if 8 * least_bytes > _TOGETHER_MAX_S * trunk_bps:
        return None
    seconds = _TOGETHER_VIRTUAL_S if in_virtual_time() else _TOGETHER_S
    return max(least_bytes, min(_TOGETHER_MAX_BYTES, max(4 * short_bytes, round(trunk_bps * seconds / 8))))


def _grain_bytes(testbed: "Testbed", datacenters: tuple[Datacenter, Datacenter], pairs: int) -> int:
    """Return what a trunk handles in one piece: a packet of each other pair, or its bucket if that is larger."""
    here, there = (each.name for each in datacenters)
    gateway = next(each for each in testbed.gateway_plan.gateways if each.datacenter == here)
    trunk = next(port.trunk for port in gateway.wan_ports if port.peer == there)
    frames = gateway.super_packet_frames
    packet_bytes = _PACKET_MAX_BYTES if frames is None else frames * FRAME_BYTES
    bucket_bytes = 0 if trunk is None else trunk.rate_bytes_per_s * trunk.burst_us // 10**6
    return max((pairs - 1) * packet_bytes, bucket_bytes)


def _acknowledgement_bytes(size_bytes: int) -> int:
    """Return what the acknowledgements of a transfer take on the wire at most, one for each segment."""
    return math.ceil(size_bytes / SEGMENT_BYTES) * (FRAME_BYTES - SEGMENT_BYTES)


class _Path:
    def __init__(self, testbed: "Testbed", conditions: LinkConditions, rate_bps: int) -> None:
        self._testbed = testbed
        self._trunk_bps = conditions.rate_bps
        self._rate_bps = rate_bps
        self._latency_s = conditions.latency_ns / 1e9
        self._short_bytes = min(_SHORT_MAX_BYTES, max(_SHORT_MIN_BYTES, rate_bps * _SHORT_NS // (8 * 10**9)))
        # A slow link says nothing for as long as a packet of each pair takes.
        self._patience_s = PATIENCE_S + _PAIRS_MAX * 8 * _PACKET_MAX_BYTES / rate_bps + 4 * self._latency_s
        self._flight_bytes, self._buffer_bytes = windows_bytes(self._short_bytes, rate_bps, 2 * self._latency_s)

    def opened(self, held: ExitStack, pairs: Sequence[tuple[str, str]]) -> list[Connection]:
        """Open a connection for each pair of hosts, windows open."""
        ends = [Ends(self._testbed, *pair) for pair in pairs]
        connections = [held.enter_context(open_connection(each, self._buffer_bytes)) for each in ends]
        open_windows(connections, self._flight_bytes, self._rate_bps, 2 * self._latency_s, self._patience_s)
        return connections

    def short(self, connections: Sequence[Connection]) -> Compared:
        """Time the last of short transfers that begin at once after a pause, the median of some pauses."""
        measured_s = []
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            measured_s.append(max(transfers_s(connections, self._short_bytes, self._rate_bps, self._patience_s)))
        rate_bps = self._rate_bps if len(connections) == 1 else self._trunk_bps
        assert rate_bps is not None
        asked_s = 8 * len(connections) * wire_bytes(self._short_bytes) / rate_bps + self._latency_s
        return Compared(asked_s, statistics.median(measured_s))

    def both_ways(self, there: Connection, back: Connection) -> Compared:
        """Time a transfer as ``short`` does, of ``there`` while ``back`` sends as much."""
        asked_s, measured_s = [], []
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            before = self._counted_bytes(there.ends)
            measured_s.append(transfers_s([there, back], self._short_bytes, self._rate_bps, self._patience_s)[0])
            counted = self._counted_bytes(there.ends) - before
            # Acknowledgements that come after the last byte are counted as well; a transfer has these at most.
            carried = min(counted, wire_bytes(self._short_bytes) + _acknowledgement_bytes(self._short_bytes))
            asked_s.append(8 * max(carried, wire_bytes(self._short_bytes)) / self._rate_bps + self._latency_s)
        return Compared(statistics.median(asked_s), statistics.median(measured_s))

    def together(
        self, connections: Sequence[Connection], short_s: Compared, both_ways_s: Compared | None, grain_bytes: int
    ) -> TransferMeasurement:
        """Measure the shares of pairs that fill the trunk, and what the trunk gives away beyond its rate."""
        assert self._trunk_bps is not None
        at_once_s = self.short(connections)
        early_bytes = (at_once_s.configured - at_once_s.measured) * self._trunk_bps / 8
        burst_bytes = max(0, round(early_bytes))
        total_bytes = together_bytes(self._trunk_bps, self._short_bytes, grain_bytes)
        if total_bytes is None:
            return TransferMeasurement(short_s, both_ways_s, burst_bytes=burst_bytes)
        size_bytes = total_bytes // len(connections)
        taken_s = transfers_s(connections, size_bytes, self._trunk_bps, self._patience_s)
        share_bps = self._trunk_bps / len(connections) * SEGMENT_BYTES / FRAME_BYTES
        paces_bps = [self._pace_bps(size_bytes, each) for each in taken_s]
        return TransferMeasurement(
            short_s,
            both_ways_s,
            Compared(share_bps, max(paces_bps, key=lambda pace_bps: abs(pace_bps - share_bps))),
            Compared(share_bps * len(connections), self._pace_bps(size_bytes * len(connections), max(taken_s))),
            burst_bytes,
        )

    def _pace_bps(self, size_bytes: int, taken_s: float) -> float:
        return 8 * size_bytes / max(1e-9, taken_s - self._latency_s)

    def _counted_bytes(self, ends: Ends) -> int:
        return next(
            port.pairs[ends.source, ends.destination].wire_bytes
            for port in self._testbed.read_counters()
            if (ends.source, ends.destination) in port.pairs
        )
