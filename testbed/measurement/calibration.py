"""Calibrate: measure every link before a run uses it, and compare it with its configuration.

The configured goodput is the TCP goodput of the rate (``wanbed.testbed.network.goodput``). On a link with impairments a
TCP connection would measure its congestion control, not the link, and where the other direction is much slower, its
acknowledgements. There the goodput is that of UDP datagrams of 1448 bytes offered at 105 % of the rate: ``rate x 1448 /
1490``, less what is lost (``wanbed.testbed.measurement.impairment_measures``).

Each direction is measured alone, over several connections whose windows together hold about 1.6 bandwidth-delay
products: enough to fill the link, too little to overflow its queue. ``transfer_calibration`` measures short transfers
after a pause, several node pairs on one trunk, and both directions at once. Over several machines these figures are
left out, and packets are as small as the machines' cards make them, and datagrams with them.

A link that changes during a trial is measured in its first conditions, and then in each distinct one of both its
directions together, or in some of many (``condition_choice``). While a direction is down, nothing may arrive.

In virtual time nothing disturbs an echo, so that a few suffice, and goodput is measured over a number of bytes instead
of seconds (``wanbed.testbed.measurement.bounded_transfer``).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from wanbed.ground.impairments import IMPAIRMENTS, UNIMPAIRED
from wanbed.ground.units import format_duration
from wanbed.testbed.hosts.ping import MeasurementError
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.measurement import bounded_transfer
from wanbed.testbed.measurement.condition_choice import choose_conditions
from wanbed.testbed.measurement.impairment_measures import (
    MEASURES,
    UDP_OFFERED,
    UDP_OVERHEAD_BYTES,
    compare,
    udp_goodput_bps,
)
from wanbed.testbed.measurement.iperf3 import UDP_PAYLOAD_BYTES, Flow, measure_goodput
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure, measure_transfers
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES, MTU_BYTES
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.links.wan_link import LinkConditions, WanLink
from wanbed.testbed.network.pair_rates import early_s
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, highest

if TYPE_CHECKING:
    from wanbed.testbed.running_testbed import RunningTestbed

RTT_TOLERANCE_MS = 0.5
_RTT_TOLERANCE = 0.02
GOODPUT_TOLERANCE = 0.03
_SHORT_TOLERANCE_MS = 1.0
_CONNECTIONS = 8
_WINDOW_OVER_DELAY_PRODUCT = 1.6
_WINDOW_MIN_BYTES = 180 * 1024
_WINDOW_UNLIMITED_BYTES = 11 * 2**20
_RATES_APART = 10
"""Beyond this ratio of the two directions' rates, the acknowledgements of a full TCP flow would fill the slower one."""
_PINGS, _PINGS_VIRTUAL, _PINGS_IMPAIRED, _PINGS_DOWN = 100, 5, 1000, 20
_SECONDS, _SECONDS_UNLIMITED, _SECONDS_AGAIN = 2, 1, 4


@dataclass(frozen=True)
class LinkMeasurement:
    """One directed link that is up, configured against measured. ``configured_goodput_bps`` is None if unlimited.

    A configured RTT is that of an echo: both latencies, and where frames take time, that of its frames at both rates.
    A link whose rate changes may let a packet arrive ``early_ms`` early (``wanbed.testbed.network.pair_rates``).

    Of a link that changes during a trial, ``at_ns`` is the time since training began at which it first has the
    conditions that were measured; it is None of any other.

    ``scope`` is ``wan`` between datacenters and ``intra`` inside one; then source and destination are equal.
    ``impairments`` and ``transfers`` are keyed by their columns in calibration. Of ``transfers`` there are those that
    were measured; see ``transfer_calibration``. ``short_ms`` is the time of a short transfer after a pause,
    ``both_ways_ms`` the same while the other direction is busy. ``share_bps`` is the goodput of the node pair farthest
    from its share of a full trunk, ``together_bps`` that of all pairs that fill it. ``burst_bytes`` is what the trunk
    sent at once beyond its rate, None if no pairs can fill it.
    """

    source: str
    destination: str
    scope: str
    configured_rtt_ms: float
    measured_rtt_ms: float
    configured_goodput_bps: float | None
    measured_goodput_bps: float
    impairments: Mapping[str, ComparedFigure]
    echo_requests: int
    transfers: Mapping[str, ComparedFigure] = field(default_factory=dict)
    burst_bytes: int | None = None
    at_ns: int | None = None
    early_ms: float = 0.0

    @property
    def condition(self) -> str | None:
        """Which conditions of a link that changes were measured, in words; None of a link that does not."""
        return None if self.at_ns is None else format_duration(self.at_ns)

    @property
    def within_tolerance(self) -> bool:
        """True if every measured figure is within tolerance of the configured one.

        Tolerances: RTT max(0.5 ms, 2 %), short transfers max(1 ms, 3 %), which may also be ``early_ms`` early, goodputs
        3 %; impairments by their measures.
        """
        # The comparison is false for NaN, which a dead link measures.
        rtt = abs(self.measured_rtt_ms - self.configured_rtt_ms) <= max(
            RTT_TOLERANCE_MS, _RTT_TOLERANCE * self.configured_rtt_ms
        )
        goodput = self.configured_goodput_bps is None or _near(
            ComparedFigure(self.configured_goodput_bps, self.measured_goodput_bps)
        )
        transfers = all(
            _near(compared, _SHORT_TOLERANCE_MS, self.early_ms) if column.endswith("_ms") else _near(compared)
            for column, compared in self.transfers.items()
        )
        impaired = all(
            MEASURES[each.field].within(self.impairments[each.column], self.echo_requests) for each in IMPAIRMENTS
        )
        return rtt and goodput and transfers and impaired

    def in_columns(self) -> dict[str, Any]:
        """Return everything but the impairments by the columns of calibration; a figure not measured is left out."""
        return {
            "source": self.source,
            "destination": self.destination,
            "scope": self.scope,
            "configured_rtt_ms": self.configured_rtt_ms,
            "measured_rtt_ms": self.measured_rtt_ms,
            "configured_goodput_bps": self.configured_goodput_bps,
            "measured_goodput_bps": self.measured_goodput_bps,
            **sided(self.transfers),
            "burst_bytes": self.burst_bytes,
            "condition": self.condition,
            "within_tolerance": self.within_tolerance,
        }

    def undilated(self, factor: float) -> "LinkMeasurement":
        """Convert the measurement from time dilated by ``factor`` to the time of the configured network."""

        def undilated(figures: Mapping[str, ComparedFigure]) -> dict[str, ComparedFigure]:
            return {column: _undilated(column, compared, factor) for column, compared in figures.items()}

        configured_bps = self.configured_goodput_bps
        return replace(
            self,
            configured_rtt_ms=self.configured_rtt_ms / factor,
            measured_rtt_ms=self.measured_rtt_ms / factor,
            configured_goodput_bps=None if configured_bps is None else configured_bps * factor,
            measured_goodput_bps=self.measured_goodput_bps * factor,
            impairments=undilated(self.impairments),
            transfers=undilated(self.transfers),
            at_ns=None if self.at_ns is None else round(self.at_ns / factor),
            early_ms=self.early_ms / factor,
        )


@dataclass(frozen=True)
class DownLinkMeasurement:
    """One directed link that changes, while it is down in either direction: all echoes are to be lost.

    ``returned_rtt_ms`` is the RTT of echoes that have come back, None if none has.
    """

    source: str
    destination: str
    scope: str
    loss: ComparedFigure
    returned_rtt_ms: float | None
    at_ns: int

    @property
    def condition(self) -> str:
        """When the link is first down so, in words."""
        return format_duration(self.at_ns) + ", down"

    @property
    def impairments(self) -> Mapping[str, ComparedFigure]:
        """The loss of echoes."""
        return {"loss": self.loss}

    @property
    def within_tolerance(self) -> bool:
        """Tell whether nothing has arrived."""
        return self.loss.measured == self.loss.configured

    def in_columns(self) -> dict[str, Any]:
        """Return everything but the impairments by the columns of calibration."""
        return {
            "source": self.source,
            "destination": self.destination,
            "scope": self.scope,
            "configured_rtt_ms": None,
            "measured_rtt_ms": self.returned_rtt_ms,
            "configured_goodput_bps": 0.0,
            "measured_goodput_bps": None,
            "condition": self.condition,
            "within_tolerance": self.within_tolerance,
        }

    def undilated(self, factor: float) -> "DownLinkMeasurement":
        """Convert the measurement from time dilated by ``factor`` to the time of the configured network."""
        rtt_ms = self.returned_rtt_ms
        return replace(
            self, returned_rtt_ms=None if rtt_ms is None else rtt_ms / factor, at_ns=round(self.at_ns / factor)
        )


MeasuredLink = LinkMeasurement | DownLinkMeasurement


def sided(figures: Mapping[str, ComparedFigure]) -> dict[str, float]:
    """Return figures by column as the columns that begin with ``configured_`` and ``measured_``."""
    return {
        f"{side}_{column}": figure for column, compared in figures.items() for side, figure in asdict(compared).items()
    }


def _undilated(column: str, compared: ComparedFigure, factor: float) -> ComparedFigure:
    if column.endswith("_ms"):
        return compared.converted(lambda value: value / factor)
    return compared.converted(lambda value: value * factor) if column.endswith("_bps") else compared


def _near(compared: ComparedFigure, least: float = 0.0, early: float = 0.0) -> bool:
    """Return whether the measured figure is within 3 %, or ``least`` if that is more; it may be less by ``early``."""
    tolerance = max(least, GOODPUT_TOLERANCE * compared.configured)
    return compared.configured - early - tolerance <= compared.measured <= compared.configured + tolerance


def calibrate(testbed: "RunningTestbed", report: Callable[[MeasuredLink], None] = lambda _: None) -> list[MeasuredLink]:
    """Measure every WAN link in each direction, and the network inside every datacenter of two or more hosts.

    Links are measured one after another, between the first hosts of their datacenters; then those that change in their
    other conditions, after which all have the first ones again. A link outside tolerance is measured again, for longer,
    and the second measurement counts. ``report`` is called with each finished measurement. At the end, the hosts have
    the default ``TcpSettings()``. Raise MeasurementError if a measurement fails, and what changing a link raises.
    """
    measured: list[MeasuredLink] = []

    def measure(path: _Path) -> None:
        link = _measure(testbed, path)
        if not link.within_tolerance:
            link = _measure(testbed, path, _SECONDS_AGAIN)
        measured.append(link)
        report(link)

    changing = testbed.changing
    for wan_link in testbed.topology.wan:
        changes = changing is not None and bool(wan_link.course_by_ends)
        for path in _wan_paths(testbed.topology, wan_link, 0, changes=changes):
            measure(path)
    for path in _inner_paths(testbed.topology):
        measure(path)
    if changing is not None:
        for wan_link in testbed.topology.wan:
            for at_ns in choose_conditions(wan_link).measured_ns[1:]:
                changing.hold(at_ns)
                for path in _wan_paths(testbed.topology, wan_link, at_ns, changes=True):
                    measure(path)
        changing.hold(0)
    testbed.use_tcp(TcpSettings())
    return measured


@dataclass(frozen=True)
class _Path:
    """Name a link in the conditions that it has ``at_ns`` after training began, if it ``changes``."""

    scope: str
    datacenters: tuple[str, str]
    hosts: tuple[str, str]
    conditions: LinkConditions
    back: LinkConditions
    fastest_bps: tuple[int | None, int | None]
    at_ns: int = 0
    changes: bool = False

    @property
    def rtt_ns(self) -> int:
        return self.conditions.latency_ns + self.back.latency_ns

    def echo_ms(self, frame_bytes: int) -> float:
        """Return the RTT of an echo: of a frame there and one back, each at the highest rate that its direction has.

        An idle link that has a lower rate now lets a frame pass when its turn begins, which is at once. On the real
        clock the shaper of any idle link lets a small frame pass at once.
        """
        serialised_ns = sum(8e9 * frame_bytes / rate_bps for rate_bps in self.fastest_bps if rate_bps is not None)
        return (self.rtt_ns + serialised_ns) / 1e6

    @property
    def judged_by_datagrams(self) -> bool:
        """True if a TCP connection would measure its congestion control or its acknowledgements, not the link."""
        rate_bps, back_bps = self.conditions.pair_rate_bps, self.back.pair_rate_bps
        narrow = rate_bps is not None and back_bps is not None and rate_bps > _RATES_APART * back_bps
        return narrow or any(way.impairments != UNIMPAIRED for way in (self.conditions, self.back))


def _wan_paths(topology: Topology, link: WanLink, at_ns: int, *, changes: bool) -> Iterator[_Path]:
    one, other = (topology.datacenter(name).hosts[0].name for name in link.between)
    then = topology.at(at_ns)
    there, back = (_limited_by_port(then, *ends) for ends, _ in link.directions)
    fastest_bps = (_fastest_bps(topology, *link.between), _fastest_bps(topology, *link.between[::-1]))
    yield _Path("wan", link.between, (one, other), there, back, fastest_bps, at_ns, changes)
    yield _Path("wan", link.between[::-1], (other, one), back, there, fastest_bps, at_ns, changes)


def _inner_paths(topology: Topology) -> Iterator[_Path]:
    for datacenter in topology.datacenters:
        if len(datacenter.hosts) > 1:
            hosts = (datacenter.hosts[0].name, datacenter.hosts[1].name)
            ends = (datacenter.name, datacenter.name)
            inner = _limited_by_port(topology, *ends)
            yield _Path("intra", ends, hosts, inner, inner, (inner.pair_rate_bps, inner.pair_rate_bps))


def _limited_by_port(topology: Topology, one: str, other: str) -> LinkConditions:
    """Return the link from one datacenter's hosts to another's, limited by the destination's port if that is slower."""
    return replace(topology.path(one, other), node_pair_rate_bps=topology.line_rate_bps(one, other))


def _fastest_bps(topology: Topology, one: str, other: str) -> int | None:
    """Return the highest rate that a node pair ever has, None if it is unlimited for a time."""
    fastest_bps = highest([conditions.pair_rate_bps for conditions in topology.ever(one, other)])
    return min((rate_bps for rate_bps in (fastest_bps, topology.intra_rate_bps) if rate_bps is not None), default=None)


def _early_s(testbed: "RunningTestbed", path: _Path) -> float:
    """Return by how much a packet may be early on the way to either end of a link that changes, as the link is then."""
    found = [0.0]
    for gateway in testbed.gateway_plan.at(path.at_ns).gateways:
        for port in gateway.wan_ports:
            if {gateway.datacenter, port.peer} == {*path.datacenters}:
                frame_bytes = testbed.mtu_bytes + ETHERNET_HEADER_BYTES
                found.append(early_s(port.pair, gateway.super_packet_frames, frame_bytes))
    return max(found)


def _measure(testbed: "RunningTestbed", path: _Path, seconds: int | None = None) -> MeasuredLink:
    conditions = path.conditions
    if not (conditions.up and path.back.up):
        return _measure_down(testbed, path)
    # A modelled TCP loses nothing, and its acknowledgements take no rate.
    impaired, rate = path.judged_by_datagrams and not testbed.stacks.modelled, conditions.pair_rate_bps
    if impaired and rate is not None:
        echoes = testbed.stacks.echoes(*path.hosts, _PINGS_IMPAIRED)
        configured_goodput_bps: float | None = udp_goodput_bps(rate, conditions.impairments, _payload_bytes(testbed))
    else:
        echoes = testbed.stacks.echoes(*path.hosts, _PINGS_VIRTUAL if in_virtual_time() else _PINGS)
        configured_goodput_bps = None if rate is None else tcp_goodput_bps(rate, testbed.mtu_bytes)
    bounded = in_virtual_time() or testbed.stacks.modelled
    measure = _bounded_goodput_bps if bounded else _timed_goodput_bps
    goodput_bps = measure(testbed, path, seconds, impaired=impaired)
    link = LinkMeasurement(
        source=path.datacenters[0],
        destination=path.datacenters[1],
        scope=path.scope,
        configured_rtt_ms=path.echo_ms(echoes.frame_bytes if bounded else 0),
        measured_rtt_ms=echoes.median_ms,
        configured_goodput_bps=configured_goodput_bps,
        measured_goodput_bps=goodput_bps,
        impairments=compare(conditions.impairments, path.back.impairments, echoes),
        echo_requests=echoes.sent,
        at_ns=path.at_ns if path.changes else None,
        early_ms=1e3 * _early_s(testbed, path) if path.changes else 0.0,
    )
    if impaired or rate is None or not testbed.stacks.opens_sockets:
        return link
    return _with_transfers(testbed, path, rate, link)


def _measure_down(testbed: "RunningTestbed", path: _Path) -> DownLinkMeasurement:
    """Look whether any echo comes back."""
    echoes = testbed.stacks.echoes(*path.hosts, _PINGS_VIRTUAL if in_virtual_time() else _PINGS_DOWN)
    return DownLinkMeasurement(
        *path.datacenters,
        path.scope,
        loss=ComparedFigure(1.0, echoes.lost),
        returned_rtt_ms=echoes.median_ms if echoes.times_ms else None,
        at_ns=path.at_ns,
    )


def _with_transfers(testbed: "RunningTestbed", path: _Path, rate_bps: int, link: LinkMeasurement) -> LinkMeasurement:
    """Add the figures that only short or simultaneous transfers show."""
    one, other = (testbed.topology.datacenter(name) for name in path.datacenters)
    try:
        transfers = measure_transfers(testbed, (one, other), path.hosts, path.conditions, path.back, rate_bps=rate_bps)
    except bounded_transfer.StalledError as stalled:
        raise MeasurementError(str(stalled)) from None
    return replace(link, transfers=transfers.figures, burst_bytes=transfers.burst_bytes)


def _timed_goodput_bps(testbed: "RunningTestbed", path: _Path, seconds: int | None, *, impaired: bool) -> float:
    """Measure goodput with iperf3, for ``seconds`` or a default duration."""
    rate = path.conditions.pair_rate_bps
    rtt_s = path.rtt_ns / 1e9
    if impaired and rate is not None:
        payload_bytes = _payload_bytes(testbed)
        flow = Flow(*path.hosts, udp_offered_bps=_offered_bps(rate, payload_bytes), udp_payload_bytes=payload_bytes)
    else:
        testbed.use_tcp(TcpSettings(window_bytes=_window_bytes(rate, rtt_s), slow_start_after_idle=False))
        flow = Flow(*path.hosts, _CONNECTIONS)
    seconds = seconds or (_SECONDS if rate is not None else _SECONDS_UNLIMITED)
    (goodput_bps,) = measure_goodput(testbed, [flow], rtt_s=rtt_s, seconds=seconds)
    return goodput_bps


def _bounded_goodput_bps(testbed: "RunningTestbed", path: _Path, seconds: int | None, *, impaired: bool) -> float:
    """Measure goodput over a number of bytes, a larger one if ``seconds`` is given."""
    conditions, rate = path.conditions, path.conditions.pair_rate_bps
    ends = bounded_transfer.Ends(testbed, *path.hosts)
    try:
        if impaired and rate is not None:
            return bounded_transfer.udp_goodput_bps(
                ends,
                rate_bps=rate,
                offered_bps=_offered_bps(rate, _payload_bytes(testbed)),
                payload_bytes=_payload_bytes(testbed),
                spread_ns=conditions.impairments.delay_spread_ns,
                longer=bool(seconds),
            )
        # Without HyStart, which mistakes the bursts of slow start for a full queue.
        testbed.use_tcp(TcpSettings(congestion="reno", slow_start_after_idle=False))
        return bounded_transfer.tcp_goodput_bps(
            ends, _CONNECTIONS, rate_bps=rate, rtt_s=path.rtt_ns / 1e9, longer=bool(seconds)
        )
    except bounded_transfer.StalledError as stalled:
        raise MeasurementError(str(stalled)) from None


def _payload_bytes(testbed: "RunningTestbed") -> int:
    """Return the payload of the datagrams that judge a link: packets are not cut into pieces on the way."""
    return UDP_PAYLOAD_BYTES - (MTU_BYTES - testbed.mtu_bytes)


def _offered_bps(rate_bps: int, payload_bytes: int) -> int:
    return round(UDP_OFFERED * rate_bps * payload_bytes / (payload_bytes + UDP_OVERHEAD_BYTES))


def _window_bytes(rate_bps: int | None, rtt_s: float) -> int:
    if rate_bps is None:
        return _WINDOW_UNLIMITED_BYTES
    return max(_WINDOW_MIN_BYTES, math.ceil(_WINDOW_OVER_DELAY_PRODUCT * rate_bps * rtt_s / 8 / _CONNECTIONS))
