"""What long flows do not show of a link: short transfers after a pause, several node pairs at once, both directions.

Windows are open, and a pause does not close them, so that a transfer of S bytes takes ``wire bytes / rate + latency``.
Over a trunk that its pairs can fill, as many as fill it start at once: each gets the same share, and all together the
trunk's rate. With both directions busy each also carries the other's acknowledgements; what they take is counted by the
qdiscs. That is tried by short transfers too: longer ones, whose acknowledgements wait behind the data of the other way,
leave gaps that are TCP's and not the link's.
"""

import math
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.host_attachment import TcpSettings
from testbed.shared_rate import FRAME_BYTES, can_bind
from testbed.timed_transfers import PATIENCE_S, Connection, open_connection, open_windows, transfers_s, wire_bytes
from testbed.topology import Datacenter, LinkConditions
from testbed.virtual_time.bounded_transfer import SEGMENT_BYTES, Ends
from testbed.virtual_time.inside import in_virtual_time

if TYPE_CHECKING:
    from testbed.testbed import Testbed

_SHORT_NS = 16_000_000
"""How long the line takes for a short transfer, within what a queue without latency holds."""
_SHORT_MIN_BYTES, _SHORT_MAX_BYTES = 16 * 1024, 16 * 2**20
_PAUSES_S = (0.1, 0.05, 0.2)
_TOGETHER_S, _TOGETHER_VIRTUAL_S = 0.4, 0.1
_TOGETHER_MAX_BYTES = 256 * 2**20
_BUFFER_TIMES = 3
"""A receive buffer over what is to be in flight: Linux gives 0.5 to 0.7 of it to the window, and a queue holds that."""
_BUFFER_MIN_BYTES = 256 * 1024
_PAIRS_MAX = 8
_PACKET_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class Compared:
    """One figure, asked and measured."""

    asked: float
    measured: float


@dataclass(frozen=True)
class TransferMeasurement:
    """Seconds of a short transfer, alone and while the other direction is busy; bit/s of pairs that fill a trunk.

    ``share_bps`` is that of the pair farthest from its share, ``together_bps`` all of them; ``burst_bytes`` is what the
    trunk let go at once beyond its rate. None where there is nothing to measure.
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

    It has a rate, and neither jitter nor loss. Leaves TCP of the hosts as it needs it. Raises StalledError.
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
    pairs = _filling_pairs(testbed, datacenters, conditions)
    if not pairs:
        return TransferMeasurement(short_s, both_ways_s)
    with ExitStack() as held:
        return path.together(path.opened(held, pairs), short_s, both_ways_s)


def _filling_pairs(
    testbed: "Testbed", datacenters: tuple[Datacenter, Datacenter], conditions: LinkConditions
) -> list[tuple[str, str]]:
    """As few node pairs as can fill the trunk, on different hosts where there are; none if they cannot."""
    sources, destinations = ([host.name for host in each.hosts] for each in datacenters)
    steps = max(len(sources), len(destinations))
    pairs = [
        (sources[step % len(sources)], destinations[(step + shift) % len(destinations)])
        for shift in range(min(len(sources), len(destinations)))
        for step in range(steps)
    ]
    for count in range(2, min(len(pairs), _PAIRS_MAX) + 1):
        if can_bind(conditions.rate_bps, [conditions.pair_rate_bps] * count):
            port_bps, ends = testbed.topology.intra_rate_bps, {destination for _, destination in pairs[:count]}
            # Where ports are slower than the trunk it is they that are filled.
            reached = port_bps is None or port_bps * len(ends) >= count * (conditions.rate_bps or 0)
            return pairs[:count] if reached else []
    return []


def _acknowledgement_bytes(size_bytes: int) -> int:
    """What the acknowledgements of a transfer take on the wire at most, one for each segment."""
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
        self._flight_bytes = max(self._short_bytes, math.ceil(2 * self._latency_s * rate_bps / 8))

    def opened(self, held: ExitStack, pairs: Sequence[tuple[str, str]]) -> list[Connection]:
        """A connection for each pair of hosts, windows open."""
        buffer_bytes = max(_BUFFER_MIN_BYTES, _BUFFER_TIMES * self._flight_bytes)
        connections = [held.enter_context(open_connection(Ends(self._testbed, *pair), buffer_bytes)) for pair in pairs]
        open_windows(connections, self._flight_bytes, 2 * self._latency_s, self._patience_s)
        return connections

    def short(self, connections: Sequence[Connection]) -> Compared:
        """The last of short transfers that begin at once after a pause, the median of some pauses."""
        measured_s = []
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            measured_s.append(max(transfers_s(connections, self._short_bytes, self._patience_s)))
        rate_bps = self._rate_bps if len(connections) == 1 else self._trunk_bps
        assert rate_bps is not None
        asked_s = 8 * len(connections) * wire_bytes(self._short_bytes) / rate_bps + self._latency_s
        return Compared(asked_s, statistics.median(measured_s))

    def both_ways(self, there: Connection, back: Connection) -> Compared:
        """As ``short``, of ``there`` while ``back`` sends as much."""
        asked_s, measured_s = [], []
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            before = self._counted_bytes(there.ends)
            measured_s.append(transfers_s([there, back], self._short_bytes, self._patience_s)[0])
            counted = self._counted_bytes(there.ends) - before
            # Acknowledgements that come after the last byte are counted as well; a transfer has these at most.
            carried = min(counted, wire_bytes(self._short_bytes) + _acknowledgement_bytes(self._short_bytes))
            asked_s.append(8 * max(carried, wire_bytes(self._short_bytes)) / self._rate_bps + self._latency_s)
        return Compared(statistics.median(asked_s), statistics.median(measured_s))

    def together(
        self, connections: Sequence[Connection], short_s: Compared, both_ways_s: Compared | None
    ) -> TransferMeasurement:
        """What pairs that fill the trunk get of it, and what it gives away beyond."""
        assert self._trunk_bps is not None
        at_once_s = self.short(connections)
        early_bytes = (at_once_s.asked - at_once_s.measured) * self._trunk_bps / 8
        size_bytes = self._lasting_bytes(self._trunk_bps) // len(connections)
        taken_s = transfers_s(connections, size_bytes, self._patience_s)
        share_bps = self._trunk_bps / len(connections) * SEGMENT_BYTES / FRAME_BYTES
        paces_bps = [self._pace_bps(size_bytes, each) for each in taken_s]
        return TransferMeasurement(
            short_s,
            both_ways_s,
            Compared(share_bps, max(paces_bps, key=lambda pace_bps: abs(pace_bps - share_bps))),
            Compared(share_bps * len(connections), self._pace_bps(size_bytes * len(connections), max(taken_s))),
            max(0, round(early_bytes)),
        )

    def _lasting_bytes(self, rate_bps: int) -> int:
        seconds = _TOGETHER_VIRTUAL_S if in_virtual_time() else _TOGETHER_S
        return min(_TOGETHER_MAX_BYTES, max(4 * self._short_bytes, round(rate_bps * seconds / 8)))

    def _pace_bps(self, size_bytes: int, taken_s: float) -> float:
        return 8 * size_bytes / max(1e-9, taken_s - self._latency_s)

    def _counted_bytes(self, ends: Ends) -> int:
        return next(
            port.pairs[ends.source, ends.destination].wire_bytes
            for port in self._testbed.read_counters()
            if (ends.source, ends.destination) in port.pairs
        )
