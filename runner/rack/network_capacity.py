"""Measure what the machines of a rack carry, through the network that an experiment makes of them."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace

from wanbed.runner.rack.machine_traffic import Carriers
from wanbed.runner.resolve.connections import NetworkDemand, NodePairDemand
from wanbed.testbed.measurement.capacity import (
    ACKNOWLEDGED_SHARE,
    CONNECTIONS,
    HEADROOM,
    LATENCY_NS,
    SETTLING_ROUND_S,
    capacity_settings,
)
from wanbed.testbed.measurement.measurement import Flow, measure_goodput
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.wan_link import link_of
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.rack.rack_testbed import RackTestbed

_SECONDS = 5
"""Flows over many machines do not begin at one instant, so that this is longer than on one machine."""


def with_headroom(topology: Topology) -> Topology:
    """Return the network with ``HEADROOM`` times its rates, links of ``LATENCY_NS`` that lose and change nothing."""

    def plain(conditions: LinkConditions) -> LinkConditions:
        return LinkConditions(LATENCY_NS, conditions.rate_bps, conditions.node_pair_rate_bps)

    faster = topology.dilated(1 / HEADROOM)
    links = []
    for link in faster.wan:
        (_, there), (_, back) = link.directions
        links.append(link_of(link.between, plain(there), plain(back)))
    return replace(faster, wan=tuple(links), intra_latency_ns=topology.intra_latency_ns)


def flows_of(demand: NetworkDemand, carriers: Carriers) -> list[NodePairDemand]:
    """Return the node pairs that send while a demand is measured: all those of the WAN that have a rate.

    Of those inside datacenters, some do, the fastest first, so that each machine with such a pair is an end of one.
    """
    covered: set[str] = set()
    inside = []
    for pair in sorted(demand.intra_pairs, key=lambda each: -(each.rate_bps or 0)):
        ends = {carriers.machine_of[pair.source], carriers.machine_of[pair.destination]}
        if pair.rate_bps and not ends <= covered:
            covered |= ends
            inside.append(pair)
    return [*(pair for pair in demand.wan_pairs if pair.rate_bps), *inside]


def measure_capacities_bps(
    demand: NetworkDemand,
    carriers: Carriers,
    up: Callable[[Topology], AbstractContextManager[RackTestbed]],
    dilation: float,
) -> dict[str, tuple[int, int]]:
    """Return what each machine has to carry of ``demand``, undilated, and what it can, in bit/s of emulated links.

    All node pairs send at once, over the machines' cards, with ``HEADROOM`` times their rates in dilated time. So a
    machine that shares a card, a core or a path with others has what is left for it while they are busy too. Machines
    that carry no rate are left out. ``up`` brings a network up over them. Raise what it and ``measure_goodput`` raise.
    """
    pairs = flows_of(demand, carriers)
    busiest = max(Counter(host for pair in pairs for host in (pair.source, pair.destination)).values(), default=1)
    connections = max(1, CONNECTIONS // busiest)
    with up(with_headroom(carriers.topology.dilated(dilation))) as testbed:
        parts = {
            (split.source, split.destination): round(split.rate_bps * dilation / HEADROOM)
            for split in testbed.trunk_splits()
        }
        demands = {name: bps for name, bps in carriers.demands_bps(demand, parts).items() if bps}
        fastest_bps = math.ceil(HEADROOM / dilation * max(pair.rate_bps or 0 for pair in pairs))
        testbed.use_tcp(capacity_settings(fastest_bps, connections))
        goodputs = measure_goodput(
            testbed,
            [Flow(pair.source, pair.destination, connections) for pair in pairs],
            rtt_s=SETTLING_ROUND_S,
            seconds=_SECONDS,
        )
        share = tcp_goodput_bps(ACKNOWLEDGED_SHARE, testbed.mtu_bytes)
    carried = _carried_bps(zip(pairs, [goodput / share for goodput in goodputs], strict=True), carriers)
    return {name: (demands[name], max(1, round(carried[name]))) for name in demands}


def _carried_bps(rates_bps: Iterable[tuple[NodePairDemand, float]], carriers: Carriers) -> dict[str, float]:
    """Return what crossed each machine: of a pair inside a datacenter, its rate once at each of its ends."""
    wan: list[tuple[NodePairDemand, float]] = []
    inside: defaultdict[str, float] = defaultdict(float)
    for pair, rate_bps in rates_bps:
        ends = carriers.topology.host(pair.source), carriers.topology.host(pair.destination)
        if ends[0].datacenter != ends[1].datacenter:
            wan.append((pair, rate_bps))
            continue
        for machine in {carriers.machine_of[pair.source], carriers.machine_of[pair.destination]}:
            inside[machine] += rate_bps
    return {name: bps + inside[name] for name, bps in carriers.traffic_bps(wan).items()}
