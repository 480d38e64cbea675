"""From a topology to the plan of its gateways."""

import math

from testbed.addressing import (
    GATEWAY_SIDE,
    HOST_SIDE,
    gateway_address,
    host_address,
    host_link_mac,
    subnet,
    wan_link_mac,
)
from testbed.gateway_plan import LOSS_DIGITS, Gateway, GatewayPlan, HostPort, NetemPlan, WanPort
from testbed.topology import LinkConditions, Topology

MTU_BYTES = 1500
ETHERNET_HEADER_BYTES = 14

QUEUE_PACKETS_MIN, QUEUE_PACKETS_MAX = 1000, 2**32 - 1
QUEUE_DELAY_MIN_NS = 20_000_000
UNLIMITED_RATE_BPS = 400_000_000_000
"""What bounds a queue where no rate does: the fastest network card sold."""


def queue_limit_packets(rate_bps: int | None, latency_ns: int, jitter_ns: int = 0) -> int:
    """How many packets a netem leaf may hold.

    netem counts the packets in flight together with those queued behind the rate, so the limit is the sum of both:
    ``rate x (latency + jitter)`` in flight, and one bandwidth-delay product ``rate x 2 x latency`` of queue (at least
    20 ms worth), in full-sized frames. Never below netem's own default of 1000, nor above what its 32 bits hold. An
    offloaded super-packet counts as one, which only makes the limit more generous.
    """
    rate = UNLIMITED_RATE_BPS if rate_bps is None else rate_bps
    held_ns = latency_ns + jitter_ns + max(2 * latency_ns, QUEUE_DELAY_MIN_NS)
    frame_bits = 8 * (MTU_BYTES + ETHERNET_HEADER_BYTES)
    return min(QUEUE_PACKETS_MAX, max(QUEUE_PACKETS_MIN, math.ceil(rate * held_ns / 10**9 / frame_bits)))


def plan_gateways(topology: Topology, slot: int) -> GatewayPlan:
    """Lay out the gateways of ``topology`` for a testbed in address slot ``slot``."""
    intra = NetemPlan(
        topology.intra_latency_ns, 0, 0.0, queue_limit_packets(topology.intra_rate_bps, topology.intra_latency_ns)
    )
    gateways = []
    for datacenter in topology.datacenters:
        here = datacenter.index
        host_ports = tuple(
            HostPort(
                host=host.name,
                host_index=host.index,
                host_address=host_address(slot, here, host.index),
                host_mac=host_link_mac(slot, here, host.index, HOST_SIDE),
                gateway_mac=host_link_mac(slot, here, host.index, GATEWAY_SIDE),
                rate_bps=topology.intra_rate_bps,
                intra=intra,
            )
            for host in datacenter.hosts
        )
        wan_ports = []
        for peer in topology.datacenters:
            if peer.index == here:
                continue
            conditions = topology.conditions(datacenter.name, peer.name)
            wan_ports.append(
                WanPort(
                    peer=peer.name,
                    peer_gateway=gateway_address(slot, peer.index),
                    peer_subnet=subnet(slot, peer.index),
                    mac=wan_link_mac(slot, here, peer.index),
                    peer_mac=wan_link_mac(slot, peer.index, here),
                    rate_bps=conditions.rate_bps,
                    pair_rate_bps=conditions.pair_rate_bps,
                    sources=tuple(host.name for host in datacenter.hosts),
                    destinations=tuple(host.name for host in peer.hosts),
                    netem=_wan_netem(conditions),
                )
            )
        gateways.append(
            Gateway(datacenter.name, gateway_address(slot, here), subnet(slot, here), host_ports, tuple(wan_ports))
        )
    lossy = any(link.conditions.loss > 0 for link in topology.wan)
    return GatewayPlan(tuple(gateways), exact_packets=lossy)


def _wan_netem(conditions: LinkConditions) -> NetemPlan:
    limit = queue_limit_packets(conditions.pair_rate_bps, conditions.latency_ns, conditions.jitter_ns)
    return NetemPlan(conditions.latency_ns, conditions.jitter_ns, round(conditions.loss, LOSS_DIGITS), limit)
