"""Turn a topology into the plan of its gateways.

Of a link that changes, everything that cannot change while packets are on their way fits each of its conditions: packet
limits, sizes of super-packets, and which leaves and classes there are.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from wanbed.testbed.network.addressing import (
    GATEWAY_SIDE,
    HOST_SIDE,
    gateway_address,
    host_address,
    host_link_mac,
    subnet,
    wan_link_mac,
)
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES, FRAME_BYTES
from wanbed.testbed.network.gateway_plan import (
    FarHosts,
    Gateway,
    GatewayPlan,
    HostPort,
    NetemPlan,
    PortCourse,
    PortState,
    SharedRate,
    WanPort,
)
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.pair_rates import pair_rates
from wanbed.testbed.network.shared_rate import Timers, bytes_per_s, can_bind, shared_rate, super_packet_frames
from wanbed.testbed.network.topology import Datacenter, Host, Topology

SHORT_PACKETS_MIN, SUPER_PACKETS_MIN, _QUEUE_PACKETS_MAX = 100_000, 1000, 2**32 - 1
"""Bounds of a queue's packets. The minima hold whatever the windows of a node pair's connections let out at once: a
drop would be a loss that is not configured and not simulated. In virtual time packets are short: 100,000 of one frame
are 150 MB. On the real clock a super-packet counts as one packet: 1000 of them are 64 MB."""
_QUEUE_DELAY_MIN_NS = 20_000_000
UNLIMITED_RATE_BPS = 400_000_000_000
"""Rate from which the queue of an unlimited link is sized: that of the fastest network card sold."""


def queue_limit_packets(
    rate_bps: int | None,
    latency_ns: int,
    spread_ns: int = 0,
    *,
    rtt_ns: int,
    floor_packets: int,
    frame_bytes: int = FRAME_BYTES,
) -> int:
    """Return the packet limit of a netem leaf.

    netem counts packets in flight and packets queued behind the rate together, so the limit is the sum of both:
    ``rate x (latency + spread)`` in flight, and a queue of one bandwidth-delay product ``rate x rtt`` (at least 20 ms
    of the rate), in full-sized frames. The result is at least ``floor_packets`` and at most 2^32 - 1, the kernel's
    maximum. An offloaded super-packet counts as one packet, which only makes the limit more generous.
    """
    rate = UNLIMITED_RATE_BPS if rate_bps is None else rate_bps
    held_ns = latency_ns + spread_ns + max(rtt_ns, _QUEUE_DELAY_MIN_NS)
    return min(_QUEUE_PACKETS_MAX, max(floor_packets, math.ceil(rate * held_ns / 10**9 / (8 * frame_bytes))))


def plan_gateways(
    topology: Topology, slot: int, timers: Timers = Timers.KERNEL, mtu_bytes: int | None = None
) -> GatewayPlan:
    """Plan the gateways of ``topology`` in address slot ``slot``, for qdiscs that are woken by ``timers``.

    ``mtu_bytes`` is that of the hosts' interfaces and of the links between gateways (default: the topology's).
    """
    mtu_bytes = topology.mtu_bytes if mtu_bytes is None else mtu_bytes
    layout = _Layout(topology, slot, timers, mtu_bytes + ETHERNET_HEADER_BYTES)
    gateways = tuple(layout.gateway(each) for each in topology.datacenters)
    return GatewayPlan(gateways, exact_packets=layout.exact_packets, mtu_bytes=mtu_bytes)


def super_packets(topology: Topology, timers: Timers) -> dict[str, int | None]:
    """Return by datacenter how many full frames its hosts may send as one packet, None for their kernels' choice.

    They are those of ``plan_gateways``, without a plan of every pair of host and datacenter.
    """
    return _Layout(topology, 0, timers, topology.mtu_bytes + ETHERNET_HEADER_BYTES).frames


class _Layout:
    """Plan the gateways of one testbed; holds what they have in common."""

    def __init__(self, topology: Topology, slot: int, timers: Timers, frame_bytes: int) -> None:
        self._topology = topology
        self._slot = slot
        self._timers = timers
        self._frame_bytes = frame_bytes
        self.exact_packets = any(
            conditions.impairments.picks_packets
            for link in topology.wan
            for ends, _ in link.directions
            for conditions in topology.ever(*ends)
        )
        self._floor_packets = SHORT_PACKETS_MIN if timers is Timers.VIRTUAL else SUPER_PACKETS_MIN
        self._shared_ports = {each.name: self._port_can_bind(each) for each in topology.datacenters}
        self.frames = {each.name: self._super_packet_frames(each) for each in topology.datacenters}

    def gateway(self, datacenter: Datacenter) -> Gateway:
        """Plan one datacenter's router."""
        return Gateway(
            datacenter.name,
            gateway_address(self._slot, datacenter.index),
            subnet(self._slot, datacenter.index),
            tuple(self._host_port(datacenter, host) for host in datacenter.hosts),
            tuple(self._wan_port(datacenter, peer) for peer in self._peers(datacenter)),
            self.frames[datacenter.name],
        )

    def _peers(self, datacenter: Datacenter) -> list[Datacenter]:
        return [peer for peer in self._topology.datacenters if peer.index != datacenter.index]

    def _host_port(self, datacenter: Datacenter, host: Host) -> HostPort:
        here, rate_bps, latency_ns = datacenter.index, self._topology.intra_rate_bps, self._topology.intra_latency_ns
        limit = self._limit_packets(rate_bps, latency_ns, rtt_ns=2 * latency_ns)
        near = NetemPlan(latency_ns, limit, _leaf_rate(rate_bps))
        shared = None
        if rate_bps is not None and self._shared_ports[datacenter.name]:
            shared = self._shared(rate_bps, self._topology.datacenters)
        return HostPort(
            host=host.name,
            host_index=host.index,
            host_address=host_address(self._slot, here, host.index),
            host_mac=host_link_mac(self._slot, here, host.index, HOST_SIDE),
            gateway_mac=host_link_mac(self._slot, here, host.index, GATEWAY_SIDE),
            datacenter_index=here,
            intra=near,
            far=()
            if rate_bps is None
            else tuple(self._far(datacenter, peer, rate_bps) for peer in self._peers(datacenter)),
            shared=shared,
        )

    def _far(self, datacenter: Datacenter, peer: Datacenter, rate_bps: int) -> FarHosts:
        """Plan the leaves for hosts of ``peer``. They have the port's rate only if it is slower than the node pair."""
        ever = self._topology.ever(peer.name, datacenter.name)
        slower = any(way.pair_rate_bps is None or rate_bps < way.pair_rate_bps for way in ever)
        latency_ns = max(conditions.latency_ns for conditions in ever)
        limit = self._limit_packets(rate_bps, latency_ns, rtt_ns=self._longest_rtt_ns(peer, datacenter))
        return FarHosts(peer.index, len(peer.hosts), NetemPlan(0, limit, _leaf_rate(rate_bps) if slower else None))

    def _wan_port(self, datacenter: Datacenter, peer: Datacenter) -> WanPort:
        ever = self._topology.ever(datacenter.name, peer.name)
        limit = self._wan_limit_packets(ever, self._longest_rtt_ns(datacenter, peer))
        changes = len(ever) > 1
        rates = pair_rates(
            [conditions.pair_rate_bps for conditions in ever],
            self._timers,
            lambda rate_bps: self._shared(rate_bps, [datacenter]),
        )
        states = tuple(
            PortState(
                _wan_netem(conditions, rates.leaf_bytes_per_s, limit, changes=changes),
                self._shared(conditions.rate_bps, [datacenter])
                if conditions.rate_bps and _trunk_can_bind(conditions, datacenter, peer)
                else None,
                above,
            )
            for conditions, above in zip(ever, rates.above, strict=True)
        )
        course = self._topology.course(datacenter.name, peer.name)
        port_course = None
        if course is not None and changes:
            number = {conditions: position for position, conditions in enumerate(ever)}
            steps = tuple((change.at_ns, number[change.conditions]) for change in course.changes)
            port_course = PortCourse(states, steps, course.period_ns)
        return WanPort(
            peer=peer.name,
            peer_gateway=gateway_address(self._slot, peer.index),
            peer_subnet=subnet(self._slot, peer.index),
            mac=wan_link_mac(self._slot, datacenter.index, peer.index),
            peer_mac=wan_link_mac(self._slot, peer.index, datacenter.index),
            trunk=states[0].trunk,
            sources=tuple(host.name for host in datacenter.hosts),
            destinations=tuple(host.name for host in peer.hosts),
            netem=states[0].netem,
            course=port_course,
            pair=states[0].pair,
        )

    def _shared(self, rate_bps: int, sources: Iterable[Datacenter]) -> SharedRate:
        """Plan a rate that is shared by hosts of the ``sources``."""
        frames = max(self.frames[each.name] or 0 for each in sources)
        return shared_rate(rate_bps, self._timers, self._frame_bytes * frames, self._frame_bytes)

    def _wan_limit_packets(self, ever: Sequence[LinkConditions], rtt_ns: int) -> int:
        """Return the limit of leaves that hold packets of any of these conditions, also of two at once."""
        # A rate may be above that from which the queue of an unlimited link is sized.
        fastest_bps = max(each.pair_rate_bps or UNLIMITED_RATE_BPS for each in ever)
        latency_ns = max(conditions.latency_ns for conditions in ever)
        spread_ns = max(conditions.impairments.delay_spread_ns for conditions in ever)
        return self._limit_packets(fastest_bps, latency_ns, spread_ns, rtt_ns=rtt_ns)

    def _longest_rtt_ns(self, one: Datacenter, other: Datacenter) -> int:
        return sum(
            max(conditions.latency_ns for conditions in self._topology.ever(*ends))
            for ends in ((one.name, other.name), (other.name, one.name))
        )

    def _shortest_rtt_ns(self, one: Datacenter, other: Datacenter) -> int:
        return sum(
            min(conditions.latency_ns for conditions in self._topology.ever(*ends))
            for ends in ((one.name, other.name), (other.name, one.name))
        )

    def _limit_packets(self, rate_bps: int | None, latency_ns: int, spread_ns: int = 0, *, rtt_ns: int) -> int:
        return queue_limit_packets(
            rate_bps,
            latency_ns,
            spread_ns,
            rtt_ns=rtt_ns,
            floor_packets=self._floor_packets,
            frame_bytes=self._frame_bytes,
        )

    def _port_can_bind(self, datacenter: Datacenter) -> bool:
        rate_bps = self._topology.intra_rate_bps
        arriving: list[int | None] = [rate_bps] * (len(datacenter.hosts) - 1)
        for peer in self._peers(datacenter):
            together_bps: list[list[int | None]] = []
            for conditions in self._topology.ever(peer.name, datacenter.name):
                pairs = [conditions.pair_rate_bps] * len(peer.hosts)
                together_bps.append([conditions.rate_bps] if can_bind(conditions.rate_bps, pairs) else pairs)
            arriving += max(together_bps, key=_sum_bps)
        return can_bind(rate_bps, arriving)

    def _super_packet_frames(self, datacenter: Datacenter) -> int | None:
        """Return how many frames the datacenter's hosts may send as one packet, None for the kernel's own choice.

        It is 1 with per-packet impairments. In virtual time it is small enough for exact serialisation on every line.
        """
        if self.exact_packets:
            return 1
        if self._timers is not Timers.VIRTUAL:
            return None
        here = datacenter.name
        frames = [
            super_packet_frames(
                conditions.pair_rate_bps,
                self._shortest_rtt_ns(datacenter, peer) or None,
                self._frame_bytes,
            )
            for peer in self._peers(datacenter)
            for conditions in self._topology.ever(here, peer.name)
            if conditions.pair_rate_bps is not None
        ]
        if self._topology.intra_rate_bps is not None:
            frames.append(super_packet_frames(self._topology.intra_rate_bps, None, self._frame_bytes))
        return min(frames, default=None)


def _wan_netem(conditions: LinkConditions, rate: int | None, limit_packets: int, *, changes: bool) -> NetemPlan:
    """Return the leaf of a node pair, which loses all packets while the link is down, and keeps their order."""
    impairments = conditions.impairments.rounded()
    if not conditions.up:
        impairments = replace(impairments, loss=1.0)
    keeps_order = changes and rate is None and not impairments.delay_spread_ns
    return NetemPlan(conditions.latency_ns, limit_packets, rate, impairments, keeps_order)


def _sum_bps(rates_bps: Iterable[int | None]) -> float:
    return sum(math.inf if rate is None else rate for rate in rates_bps)


def _trunk_can_bind(conditions: LinkConditions, datacenter: Datacenter, peer: Datacenter) -> bool:
    pairs = len(datacenter.hosts) * len(peer.hosts)
    return can_bind(conditions.rate_bps, [conditions.pair_rate_bps] * pairs)


def _leaf_rate(rate_bps: int | None) -> int | None:
    return None if rate_bps is None else bytes_per_s(rate_bps)
