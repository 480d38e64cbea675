"""Choose the dilation of a run over a rack: what each machine has to carry, against what it can.

The latter is measured through the network that the experiment makes of the machines, with all of them busy. The largest
factor that a machine needs is the run's.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from wanbed.results.text import count_text, rate_text
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.rack_runs.placement import PointPlacement
from wanbed.runner.resolve.connections import NetworkDemand, NodePairDemand
from wanbed.runner.resolve.dilation import choose_dilation, settled_dilation
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.measurement.capacity import (
    ACKNOWLEDGED_SHARE,
    CONNECTIONS,
    HEADROOM,
    LATENCY_NS,
    SETTLING_ROUND_S,
    capacity_settings,
)
from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.links.wan_link import LinkConditions, link_of
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.rack.machine_handle import MachineHandle
from wanbed.testbed.rack.rack_testbed import RackTestbed

_SECONDS = 5
"""Flows over many machines do not begin at one instant, so that this is longer than on one machine."""

Trunks = Mapping[tuple[str, str], int]
"""Rates in bit/s by the sending and the receiving datacenter."""


@dataclass(frozen=True)
class Carriers:
    """Which machines carry what: the machine of each host, and the gateway machine of each datacenter that has one."""

    topology: Topology
    machine_of: Mapping[str, str]
    gateways: Mapping[str, str]

    @property
    def machines(self) -> tuple[str, ...]:
        """Every machine, each once."""
        return tuple(dict.fromkeys([*self.machine_of.values(), *self.gateways.values()]))

    def hosts_on(self, machine: str) -> int:
        """Return how many hosts a machine carries."""
        return [*self.machine_of.values()].count(machine)

    def traffic_bps(
        self, wan: Iterable[tuple[NodePairDemand, float]], *, trunks: Trunks | None = None, parts: Trunks | None = None
    ) -> dict[str, float]:
        """Return what crosses each machine if these node pairs of the WAN send at these rates, both directions added.

        A gateway machine has everything that its datacenter sends, once in and once out. With ``trunks`` no link
        carries more than its trunk; with ``parts`` no machine sends more into a link than its part of the trunk.
        """
        sent: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
        received: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
        for pair, rate_bps in wan:
            link = self.topology.host(pair.source).datacenter, self.topology.host(pair.destination).datacenter
            sent[self.machine_of[pair.source]][link] += rate_bps
            received[self.machine_of[pair.destination]][link] += rate_bps
            if link[0] in self.gateways:
                sent[self.gateways[link[0]]][link] += rate_bps
                received[self.gateways[link[0]]][link] += rate_bps
        limits = trunks or {}
        sending = {**limits, **(parts or {})}
        return {name: _within(sent[name], sending) + _within(received[name], limits) for name in self.machines}

    def demands_bps(self, demand: NetworkDemand, parts: Trunks | None = None) -> dict[str, int]:
        """Return what each machine has to carry when all node pairs of ``demand`` send at once.

        That is what its hosts send to other datacenters and receive from them, and the highest rate of its hosts inside
        their datacenter, in both directions. Unlimited rates do not count.
        """
        ends = {(pair.source, pair.destination) for pair in demand.wan_pairs}
        links = {tuple(self.topology.host(host).datacenter for host in each) for each in ends}
        trunks = {
            (source, destination): rate_bps
            for source, destination in links
            if (rate_bps := self.topology.conditions(source, destination).rate_bps) is not None
        }
        wan = self.traffic_bps(((pair, pair.rate_bps or 0) for pair in demand.wan_pairs), trunks=trunks, parts=parts)
        inside: dict[str, int] = defaultdict(int)
        for pair in demand.intra_pairs:
            for host in (pair.source, pair.destination):
                machine = self.machine_of[host]
                inside[machine] = max(inside[machine], pair.rate_bps or 0)
        return {name: round(wan[name]) + inside[name] for name in self.machines}


def _within(rates_bps: Mapping[tuple[str, str], float], limits: Trunks) -> float:
    return sum(min(rate_bps, limits.get(link, rate_bps)) for link, rate_bps in rates_bps.items())


class UpOverRack(Protocol):
    """Brings a network up over the machines of a placement, for the duration of a ``with`` block."""

    def __call__(self, placed: PointPlacement, topology: Topology) -> AbstractContextManager[RackTestbed]:
        """Return the network that is up inside the block."""


@dataclass(frozen=True)
class MachineDemand:
    """The largest demand on one machine and its capacity, both in bit/s, its cores, and the number of its hosts."""

    demand_bps: int
    capacity_bps: int
    cores: int
    hosts: int

    @property
    def strain(self) -> float:
        """Return what it has to carry over what it can."""
        return self.demand_bps / self.capacity_bps


@dataclass(frozen=True)
class RackDilation:
    """The factor of a run over a rack. ``machines`` are those that were measured, none where it was not derived."""

    factor: float
    machines: Mapping[str, MachineDemand]

    @property
    def tightest(self) -> str | None:
        """The machine that decides, None if none was measured."""
        return max(
            self.machines,
            key=lambda each: self.machines[each].strain,
            default=None,
        )

    def facts(self) -> dict[str, Any]:
        """Return the factor, and what it was derived from, as in manifests."""
        tightest = self.tightest
        if tightest is None:
            return {"dilation": self.factor, "capacity_bps": None}
        return {
            "dilation": self.factor,
            "capacity_bps": self.machines[tightest].capacity_bps,
            "dilation_decided_by": tightest,
            "dilation_machines": {name: asdict(load) for name, load in self.machines.items()},
        }


def decide_rack_dilation(
    placements: Collection[PointPlacement],
    handles: Mapping[str, MachineHandle],
    up: UpOverRack,
    log: Log,
    *,
    shaped: bool,
) -> RackDilation:
    """Return the configured factor, or measure what the machines carry and derive it.

    Nothing is measured if no link in use has a rate, or if the network is not ``shaped``. Raise CapacityError if a
    machine cannot carry what it has to, and what bringing a network up and measuring it raises.
    """
    points = [placed.point for placed in placements]
    configured = points[0].spec.dilation
    if configured != AUTO:
        return RackDilation(choose_dilation(0, 1, configured), {})
    heaviest = heaviest_demands(placements) if shaped else []
    if not heaviest:
        return RackDilation(1.0, {})

    real_time = any(point.real_time for point in points)

    def at(dilation: float) -> RackDilation:
        log(f"measuring what the machines carry when all links are busy, at dilation {dilation:g}, for dilation: auto")
        loads = _measured(heaviest, handles, up, dilation)
        return RackDilation(derived_factor(loads, real_time=real_time), loads)

    decided = settled_dilation(at)
    if decided.tightest is not None:
        log(_reason(decided, decided.tightest))
    return decided


def _measured(
    demands: Iterable[tuple[PointPlacement, NetworkDemand]],
    handles: Mapping[str, MachineHandle],
    up: UpOverRack,
    dilation: float,
) -> dict[str, MachineDemand]:
    loads: dict[str, MachineDemand] = {}
    for placed, demand in demands:
        carriers = carriers_of(placed)
        measured = measure_capacities_bps(demand, carriers, partial(up, placed), dilation)
        for name, (demand_bps, capacity_bps) in measured.items():
            load = MachineDemand(demand_bps, capacity_bps, handles[name].call("facts").cores, carriers.hosts_on(name))
            loads[name] = max(loads.get(name, load), load, key=lambda each: each.strain)
    return loads


def derived_factor(loads: Mapping[str, MachineDemand], *, real_time: bool) -> float:
    """Return the smallest factor with which every machine carries its part, 1 without any. Raise CapacityError."""
    return max(
        (
            choose_dilation(load.demand_bps, load.capacity_bps, AUTO, real_time=real_time, carrier=f"machine {name}")
            for name, load in loads.items()
        ),
        default=1.0,
    )


def heaviest_demands(placements: Iterable[PointPlacement]) -> list[tuple[PointPlacement, NetworkDemand]]:
    """Return the demands of some variants, such that one of them has the heaviest load of each machine.

    There are as few of them as the order of the placements allows: one, where one is the heaviest for all machines.
    """
    every = [(placed, demand) for placed in placements for demand in placed.point.demands]
    by_machine = [carriers_of(placed).demands_bps(demand) for placed, demand in every]
    machines = dict.fromkeys(name for demands in by_machine for name, bps in demands.items() if bps)
    totals = [sum(demands.values()) for demands in by_machine]
    chosen: dict[int, None] = {}
    for name in machines:
        heaviest = max(demands.get(name, 0) for demands in by_machine)
        candidates = [at for at, demands in enumerate(by_machine) if demands.get(name, 0) == heaviest]
        if not chosen.keys() & {*candidates}:
            chosen[max(candidates, key=lambda at: totals[at])] = None
    return [every[at] for at in chosen]


def carriers_of(placed: PointPlacement) -> Carriers:
    """Return which machines carry what of a placement."""
    return Carriers(placed.point.topology, placed.machine_of, placed.gateways)


def _reason(decided: RackDilation, tightest: str) -> str:
    load = decided.machines[tightest]
    return (
        f"dilation {decided.factor:g}: {tightest} has least to spare of all machines, with "
        f"{rate_text(load.demand_bps)} to carry of {rate_text(load.capacity_bps)}, and "
        f"{count_text(load.cores, 'core')} for {count_text(load.hosts, 'host')}"
    )


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
