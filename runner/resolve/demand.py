"""Compute a variant's highest demand on the network, and how many connections fill a node pair."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from wanbed.runner.experiment.quantities import MAX_CONNECTIONS
from wanbed.runner.resolve.placement import Pair
from wanbed.testbed.network.topology import Topology

FILL_MARGIN = Fraction(11, 10)


@dataclass(frozen=True)
class NodePairDemand:
    """The highest rate from one host to another, in this direction. None is unlimited."""

    source: str
    destination: str
    rate_bps: int | None


@dataclass(frozen=True)
class NetworkDemand:
    """The demand of a variant's directed node pairs when all of them send at once.

    ``wan_bps`` is the total over the WAN: for each link and direction the sum of its node pairs, or the trunk's rate if
    that is lower. ``intra_bps`` is the highest single rate inside a datacenter, because hosts there send in bursts that
    rarely coincide. Unlimited rates do not count in either figure: they take whatever is available.
    """

    wan_pairs: tuple[NodePairDemand, ...]
    intra_pairs: tuple[NodePairDemand, ...]
    wan_bps: int
    intra_bps: int

    @property
    def total_bps(self) -> int:
        """The rate that the machine must carry at once: ``wan_bps`` plus ``intra_bps``."""
        return self.wan_bps + self.intra_bps


def network_demand(topology: Topology, pairs: Iterable[Pair]) -> NetworkDemand:
    """Return the demand of pairs of ranks that communicate in both directions at the same time.

    A pair of hosts counts once, even if it connects several stages. Stages on one host need no network.
    """
    wan: dict[tuple[str, str], NodePairDemand] = {}
    intra: dict[tuple[str, str], NodePairDemand] = {}
    on_link: dict[tuple[str, str], dict[tuple[str, str], int | None]] = defaultdict(dict)
    for one, other in pairs:
        for sender, receiver in ((one, other), (other, one)):
            hosts = (sender.host.name, receiver.host.name)
            link = (sender.datacenter, receiver.datacenter)
            if link[0] != link[1]:
                rate_bps = topology.conditions(*link).pair_rate_bps
                wan[hosts] = NodePairDemand(*hosts, rate_bps)
                on_link[link][hosts] = rate_bps
            elif hosts[0] != hosts[1]:
                intra[hosts] = NodePairDemand(*hosts, topology.intra_rate_bps)
    return NetworkDemand(
        tuple(wan.values()),
        tuple(intra.values()),
        sum(_link_demand_bps(topology, link, list(pairs.values())) for link, pairs in on_link.items()),
        max((pair.rate_bps or 0 for pair in intra.values()), default=0),
    )


def _link_demand_bps(topology: Topology, link: tuple[str, str], pair_rates_bps: list[int | None]) -> int:
    trunk_bps = topology.conditions(*link).rate_bps
    configured_bps = sum(rate_bps for rate_bps in pair_rates_bps if rate_bps is not None)
    return configured_bps if trunk_bps is None else min(configured_bps, trunk_bps)


def connections_wanted(pair_rate_bps: float, single_connection_bps: float) -> int:
    """Return how many TCP connections fill a node pair: ``ceil(1.1 x cap / rate of a single connection)``.

    The rule is ``n = ceil(cap x RTT / window)``, because one connection moves ``window / RTT``. The margin of 10 %
    compensates for connections that have just lost a packet or are in slow start. Both rates must be of the same kind,
    goodput or wire rate. Raise ValueError unless both are above 0.
    """
    if not (pair_rate_bps > 0 and single_connection_bps > 0):
        raise ValueError(f"rates must be above 0, not {pair_rate_bps} and {single_connection_bps} bit/s")
    return ceil(FILL_MARGIN * Fraction(pair_rate_bps) / Fraction(single_connection_bps))


def connections_to_fill(pair_rate_bps: float, single_connection_bps: float) -> int:
    """Return ``connections_wanted``, limited to ``MAX_CONNECTIONS``: each is a socket with buffers at both ends."""
    return min(connections_wanted(pair_rate_bps, single_connection_bps), MAX_CONNECTIONS)
