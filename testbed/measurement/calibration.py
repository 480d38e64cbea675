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
from dataclasses import dataclass, replace
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
from wanbed.testbed.measurement.measurement import UDP_PAYLOAD_BYTES, Flow, measure_goodput
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure, measure_transfers
from wanbed.testbed.network.course_extremes import highest
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.wan_link import WanLink
from wanbed.testbed.network.pair_rates import early_s
from wanbed.testbed.network.shared_rate import ETHERNET_HEADER_BYTES, MTU_BYTES
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology

if TYPE_CHECKING:
    from wanbed.testbed.running_testbed import RunningTestbed

RTT_TOLERANCE_MS = 0.5
RTT_TOLERANCE = 0.02
GOODPUT_TOLERANCE = 0.03
SHORT_TOLERANCE_MS = 1.0
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
    """One directed link, configured against measured. ``configured_goodput_bps`` is None for an unlimited rate.

    A configured RTT is that of an echo: both latencies, and where frames take time, that of its frames at both rates.
    A link whose rate changes may let a packet arrive ``early_ms`` early (``wanbed.testbed.network.pair_rates``).

    Of a link that changes during a trial, ``at_ns`` is the time since training began at which it first has the
    conditions that were measured; it is None of any other. While the link is not ``up`` in both directions, only the
    loss of echoes is measured.

    ``scope`` is ``wan`` between datacenters and ``intra`` inside one; then source and destination are equal.
    ``impairments`` are keyed by their columns in calibration. The remaining fields are None if not measured; see
    ``transfer_calibration``. ``short`` is the time of a short transfer after a pause, ``both_ways`` the same while the
    other direction is busy. ``share`` is the goodput of the node pair farthest from its share of a full trunk,
    ``together`` that of all pairs that fill it. ``burst_bytes`` is what the trunk sent at once beyond its rate.
    """

    source: str
    destination: str
    scope: str
    configured_rtt_ms: float | None
    measured_rtt_ms: float | None
    configured_goodput_bps: float | None
    measured_goodput_bps: float | None
    impairments: Mapping[str, ComparedFigure]
    echo_requests: int
    configured_short_ms: float | None = None
    measured_short_ms: float | None = None
    configured_both_ways_ms: float | None = None
    measured_both_ways_ms: float | None = None
    configured_share_bps: float | None = None
    measured_share_bps: float | None = None
    configured_together_bps: float | None = None
    measured_together_bps: float | None = None
    burst_bytes: int | None = None
    at_ns: int | None = None
    up: bool = True
    early_ms: float = 0.0

    @property
    def condition(self) -> str | None:
        """Which conditions of a link that changes were measured, in words; None of a link that does not."""
        return None if self.at_ns is None else format_duration(self.at_ns) + ("" if self.up else ", down")

    @property
    def within_tolerance(self) -> bool:
        """Whether every measured figure is within tolerance of the configured one.

        Tolerances: RTT max(0.5 ms, 2 %), short transfers max(1 ms, 3 %), which may also be ``early_ms`` early, goodputs
        3 %; impairments by their measures. While the link is down, nothing may arrive.
        """
        if not self.up:
            return all(compared.measured == compared.configured for compared in self.impairments.values())
        assert self.configured_rtt_ms is not None
        assert self.measured_rtt_ms is not None
        # The comparison is false for NaN, which a dead link measures.
        rtt = abs(self.measured_rtt_ms - self.configured_rtt_ms) <= max(
            RTT_TOLERANCE_MS, RTT_TOLERANCE * self.configured_rtt_ms
        )
        goodputs = (
            (self.configured_goodput_bps, self.measured_goodput_bps),
            (self.configured_share_bps, self.measured_share_bps),
            (self.configured_together_bps, self.measured_together_bps),
        )
        goodput = all(_near(configured, measured, GOODPUT_TOLERANCE) for configured, measured in goodputs)
        short = all(
            _near(configured, measured, GOODPUT_TOLERANCE, SHORT_TOLERANCE_MS, self.early_ms)
            for configured, measured in (
                (self.configured_short_ms, self.measured_short_ms),
                (self.configured_both_ways_ms, self.measured_both_ways_ms),
            )
        )
        impaired = all(
            MEASURES[each.field].within(self.impairments[each.column], self.echo_requests) for each in IMPAIRMENTS
        )
        return rtt and goodput and short and impaired

    def undilated(self, factor: float) -> "LinkMeasurement":
        """Convert the measurement from time dilated by ``factor`` to the time of the configured network."""

        def scaled(name: str) -> float | None:
            value: float | None = getattr(self, name)
            return None if value is None else value / factor if name.endswith("_ms") else value * factor

        figures: dict[str, Any] = {name: scaled(name) for name in vars(self) if name.endswith(("_ms", "_bps"))}
        impairments = dict(self.impairments)
        for each in IMPAIRMENTS:
            if each.is_duration and each.column in impairments:
                dilated = impairments[each.column]
                impairments[each.column] = ComparedFigure(dilated.configured / factor, dilated.measured / factor)
        at_ns = None if self.at_ns is None else round(self.at_ns / factor)
        return replace(self, impairments=impairments, at_ns=at_ns, **figures)


def _near(
    configured: float | None, measured: float | None, share: float, least: float = 0.0, early: float = 0.0
) -> bool:
    """Return whether ``measured`` is within max(``least``, ``share`` of it) of ``configured``, or that is None.

    It may be less by ``early`` more.
    """
    if configured is None:
        return True
    tolerance = max(least, share * configured)
    return measured is not None and configured - early - tolerance <= measured <= configured + tolerance


def calibrate(
    testbed: "RunningTestbed", report: Callable[[LinkMeasurement], None] = lambda _: None
) -> list[LinkMeasurement]:
    """Measure every WAN link in each direction, and the network inside every datacenter of two or more hosts.

    Links are measured one after another, between the first hosts of their datacenters; then those that change in their
    other conditions, after which all have the first ones again. A link outside tolerance is measured again, for longer,
    and the second measurement counts. ``report`` is called with each finished measurement. At the end, the hosts have
    the default ``TcpSettings()``. Raise MeasurementError if a measurement fails, and what changing a link raises.
    """
    measured: list[LinkMeasurement] = []

    def measure(path: _Path, at_ns: int | None) -> None:
        early_ms = 0.0 if at_ns is None else 1e3 * _early_s(testbed, path.datacenters, at_ns)
        link = replace(_measure(testbed, path), at_ns=at_ns, early_ms=early_ms)
        if not link.within_tolerance:
            link = replace(_measure(testbed, path, _SECONDS_AGAIN), at_ns=at_ns, early_ms=early_ms)
        measured.append(link)
        report(measured[-1])

    changing = testbed.changing
    for wan_link in testbed.topology.wan:
        for path in _wan_paths(testbed.topology, wan_link):
            measure(path, 0 if changing is not None and wan_link.course_by_ends else None)
    for path in _inner_paths(testbed.topology):
        measure(path, None)
    if changing is not None:
        for wan_link in testbed.topology.wan:
            for at_ns in choose_conditions(wan_link).measured_ns[1:]:
                changing.hold(at_ns)
                for path in _wan_paths(testbed.topology, wan_link, at_ns):
                    measure(path, at_ns)
        changing.hold(0)
    testbed.use_tcp(TcpSettings())
    return measured


@dataclass(frozen=True)
class _Path:
    scope: str
    datacenters: tuple[str, str]
    hosts: tuple[str, str]
    conditions: LinkConditions
    back: LinkConditions
    fastest_bps: tuple[int | None, int | None]

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
        """Whether a TCP connection would measure its congestion control or its acknowledgements, not the link."""
        rate_bps, back_bps = self.conditions.pair_rate_bps, self.back.pair_rate_bps
        narrow = rate_bps is not None and back_bps is not None and rate_bps > _RATES_APART * back_bps
        return narrow or any(way.impairments != UNIMPAIRED for way in (self.conditions, self.back))


def _wan_paths(topology: Topology, link: WanLink, at_ns: int = 0) -> Iterator[_Path]:
    one, other = (topology.datacenter(name).hosts[0].name for name in link.between)
    then = topology.at(at_ns)
    there, back = (_limited_by_port(then, *ends) for ends, _ in link.directions)
    fastest_bps = (_fastest_bps(topology, *link.between), _fastest_bps(topology, *link.between[::-1]))
    yield _Path("wan", link.between, (one, other), there, back, fastest_bps)
    yield _Path("wan", link.between[::-1], (other, one), back, there, fastest_bps)


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


def _early_s(testbed: "RunningTestbed", datacenters: tuple[str, str], at_ns: int) -> float:
    """Return by how much a packet may be early on the way to either datacenter, as the link is at that time."""
    found = [0.0]
    for gateway in testbed.gateway_plan.at(at_ns).gateways:
        for port in gateway.wan_ports:
            if {gateway.datacenter, port.peer} == {*datacenters}:
                frame_bytes = testbed.mtu_bytes + ETHERNET_HEADER_BYTES
                found.append(early_s(port.pair, gateway.super_packet_frames, frame_bytes))
    return max(found)


def _measure(testbed: "RunningTestbed", path: _Path, seconds: int | None = None) -> LinkMeasurement:
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
    )
    if impaired or rate is None or not testbed.stacks.opens_sockets:
        return link
    return _with_transfers(testbed, path, link)


def _measure_down(testbed: "RunningTestbed", path: _Path) -> LinkMeasurement:
    """Look whether any echo comes back."""
    echoes = testbed.stacks.echoes(*path.hosts, _PINGS_VIRTUAL if in_virtual_time() else _PINGS_DOWN)
    return LinkMeasurement(
        *path.datacenters,
        path.scope,
        configured_rtt_ms=None,
        measured_rtt_ms=echoes.median_ms if echoes.times_ms else None,
        configured_goodput_bps=0.0,
        measured_goodput_bps=None,
        impairments={"loss": ComparedFigure(1.0, echoes.lost)},
        echo_requests=echoes.sent,
        up=False,
    )


def _with_transfers(testbed: "RunningTestbed", path: _Path, link: LinkMeasurement) -> LinkMeasurement:
    """Add the figures that only short or simultaneous transfers show."""
    one, other = (testbed.topology.datacenter(name) for name in path.datacenters)
    try:
        transfers = measure_transfers(testbed, (one, other), path.hosts, path.conditions, path.back)
    except bounded_transfer.StalledError as stalled:
        raise MeasurementError(str(stalled)) from None
    figures: dict[str, Any] = {"burst_bytes": transfers.burst_bytes}
    for name, compared, scale in (
        ("short_ms", transfers.short_s, 1e3),
        ("both_ways_ms", transfers.both_ways_s, 1e3),
        ("share_bps", transfers.share_bps, 1),
        ("together_bps", transfers.together_bps, 1),
    ):
        if compared is not None:
            figures[f"configured_{name}"] = scale * compared.configured
            figures[f"measured_{name}"] = scale * compared.measured
    return replace(link, **figures)


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
                offered_bps=_offered_bps(rate),
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


def _offered_bps(rate_bps: int, payload_bytes: int = UDP_PAYLOAD_BYTES) -> int:
    return round(UDP_OFFERED * rate_bps * payload_bytes / (payload_bytes + UDP_OVERHEAD_BYTES))


def _window_bytes(rate_bps: int | None, rtt_s: float) -> int:
    if rate_bps is None:
        return _WINDOW_UNLIMITED_BYTES
    return max(_WINDOW_MIN_BYTES, math.ceil(_WINDOW_OVER_DELAY_PRODUCT * rate_bps * rtt_s / 8 / _CONNECTIONS))
