"""Add up what crosses each machine of a rack: what its hosts send and receive, and what a gateway machine forwards."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wanbed.runner.resolve.connections import NetworkDemand, NodePairDemand
from wanbed.testbed.network.topology import Topology

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
