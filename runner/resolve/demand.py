"""Work out the most that a variant can ask of the network, and how many connections fill a pair of nodes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from runner.experiment.quantities import MAX_CONNECTIONS
from runner.resolve.placement import Pair
from testbed.network.topology import Topology

FILL_MARGIN = Fraction(11, 10)


@dataclass(frozen=True)
class NodePairDemand:
    """The most that one host can send to another, in this direction; None is unlimited."""

    source: str
    destination: str
    rate_bps: int | None


@dataclass(frozen=True)
class NetworkDemand:
    """The demand of a variant's directed node pairs when all of them send at once.

    ``wan_bps`` is their sum over the WAN: on each link and in each direction the sum of its node pairs, or the trunk's
    rate where that is less. ``intra_bps`` is the largest single rate inside a datacenter, since neighbours there send
    in bursts that seldom meet. Unlimited rates do not count in either: they ask for what there is.
    """

    wan_pairs: tuple[NodePairDemand, ...]
    intra_pairs: tuple[NodePairDemand, ...]
    wan_bps: int
    intra_bps: int

    @property
    def total_bps(self) -> int:
        """The rate that has to be carried at once: the WAN's sum and the largest single rate inside a datacenter."""
        return self.wan_bps + self.intra_bps


def network_demand(topology: Topology, pairs: Iterable[Pair]) -> NetworkDemand:
    """Return the demand of ranks that communicate, in pairs, both ways at the same time.

    A pair of hosts counts once however many stages it joins; stages on one host ask nothing of the network.
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
    """Return how many TCP connections fill a node pair: ``ceil(1.1 x cap / rate of a single one)``.

    The rule is ``n = ceil(cap x RTT / window)``, where a single connection moves ``window / RTT``. The margin of 10 %
    makes up for connections that have just lost a packet or start slowly. Both rates are of the same kind, goodput or
    wire. Raises ValueError unless both are above 0.
    """
    if not (pair_rate_bps > 0 and single_connection_bps > 0):
        raise ValueError(f"rates must be above 0, not {pair_rate_bps} and {single_connection_bps} bit/s")
    return ceil(FILL_MARGIN * Fraction(pair_rate_bps) / Fraction(single_connection_bps))


def connections_to_fill(pair_rate_bps: float, single_connection_bps: float) -> int:
    """Return ``connections_wanted``, at most ``MAX_CONNECTIONS``: each is a socket with buffers at either end."""
    return min(connections_wanted(pair_rate_bps, single_connection_bps), MAX_CONNECTIONS)
