"""Compute the needs of a variant on the network: its highest demand, its TCP connections, and the bytes they hold."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final

from wanbed.runner.experiment.quantities import MAX_CONNECTIONS
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.placement import Pair
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.transport.frame import CHUNK_BYTES
from wanbed.workloads.transport.peer import UNSENT_BYTES


def tcp_settings(transport: TransportSpec) -> TcpSettings:
    """Return the TCP settings of the hosts for a variant's transport."""
    return TcpSettings(
        transport.window, transport.congestion, transport.slow_start_after_idle, keep_warm=transport.keep_warm
    )


def window_bps(transport: TransportSpec, rtt_ns: int) -> float:
    """Return the highest rate of one connection: its window once per RTT."""
    return transport.window * 8 * 1e9 / rtt_ns if rtt_ns else float("inf")


def count_connections(
    topology: Topology, pairs: Iterable[Pair], transport: TransportSpec
) -> dict[tuple[str, str], int]:
    """Return the number of connections for each pair of places, by the names of their two hosts.

    ``auto`` fills the cap of a node pair across the WAN, see ``connections_to_fill``, in its faster direction. One
    connection is enough inside a datacenter and where no rate caps the pair. Dilation does not change the number.
    """
    if transport.connections != "auto":
        return {(one.host.name, other.host.name): transport.connections for one, other in pairs}
    counts: dict[tuple[str, str], int] = {}
    between: dict[tuple[str, str], int] = {}
    for one, other in pairs:
        ends = one.datacenter, other.datacenter
        if ends not in between:
            rates_bps = _rates_bps(topology, ends, transport)
            between[ends] = 1 if rates_bps is None else connections_to_fill(*rates_bps)
        counts[one.host.name, other.host.name] = between[ends]
    return counts


@dataclass(frozen=True)
class CutPair:
    """Two hosts, lower rank first, whose ``auto`` connections are limited to ``MAX_CONNECTIONS``.

    ``wanted`` connections would fill the node pair's cap. ``carried`` is the fraction of the cap that
    ``MAX_CONNECTIONS`` connections can carry.
    """

    hosts: tuple[str, str]
    wanted: int
    carried: float


def cut_pairs(topology: Topology, pairs: Iterable[Pair], transport: TransportSpec) -> tuple[CutPair, ...]:
    """Return the node pairs whose ``auto`` connections are limited to ``MAX_CONNECTIONS``, each once."""
    if transport.connections != "auto":
        return ()
    found: dict[tuple[str, str], CutPair] = {}
    between: dict[tuple[str, str], tuple[int, float] | None] = {}
    for one, other in pairs:
        ends, hosts = (one.datacenter, other.datacenter), (one.host.name, other.host.name)
        if ends not in between:
            between[ends] = _cut(_rates_bps(topology, ends, transport))
        if (cut := between[ends]) is not None:
            found[hosts] = CutPair(hosts, *cut)
    return tuple(found.values())


def _cut(rates_bps: tuple[float, float] | None) -> tuple[int, float] | None:
    """Return ``wanted`` and ``carried`` of a ``CutPair`` with these ``_rates_bps``, None for one that is not cut."""
    if rates_bps is None or (wanted := connections_wanted(*rates_bps)) <= MAX_CONNECTIONS:
        return None
    return wanted, min(MAX_CONNECTIONS * rates_bps[1] / rates_bps[0], 1.0)


def _rates_bps(topology: Topology, ends: tuple[str, str], transport: TransportSpec) -> tuple[float, float] | None:
    """Return the goodput of a node pair of two datacenters and the rate of one connection; None if one is enough.

    Of two directions with different rates it is the faster one: connections carry both.
    """
    if ends[0] == ends[1]:
        return None
    single_bps = window_bps(transport, topology.rtt_ns(*ends))
    rates_bps = [rate for way in (ends, ends[::-1]) if (rate := topology.line_rate_bps(*way)) is not None]
    if not rates_bps or single_bps == float("inf"):
        return None
    return tcp_goodput_bps(max(rates_bps), topology.mtu_bytes), single_bps


_FILL_MARGIN = Fraction(11, 10)


def connections_wanted(pair_rate_bps: float, single_connection_bps: float) -> int:
    """Return how many TCP connections fill a node pair: ``ceil(1.1 x cap / rate of a single connection)``.

    The rule is ``n = ceil(cap x RTT / window)``, because one connection moves ``window / RTT``. The margin of 10 %
    compensates for connections that have just lost a packet or are in slow start. Both rates must be of the same kind,
    goodput or wire rate. Raise ValueError unless both are above 0.
    """
    if not (pair_rate_bps > 0 and single_connection_bps > 0):
        raise ValueError(f"rates must be above 0, not {pair_rate_bps} and {single_connection_bps} bit/s")
    return ceil(_FILL_MARGIN * Fraction(pair_rate_bps) / Fraction(single_connection_bps))


def connections_to_fill(pair_rate_bps: float, single_connection_bps: float) -> int:
    """Return ``connections_wanted``, limited to ``MAX_CONNECTIONS``: each is a socket with buffers at both ends."""
    return min(connections_wanted(pair_rate_bps, single_connection_bps), MAX_CONNECTIONS)


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


_UNSENT_PART: Final = 8

_UNSENT_PART_ALONE: Final = 2
"""Divisors of what a connection may have in flight: that part it may hold unsent. It is sent an eighth of an RTT later,
or at once where the connection is alone on a path that holds less than its window."""

_UNREAD_PART: Final = 4
"""A divisor of the same: that part may arrive before it is read. A window that is held loses nothing to it."""


def held_bytes(topology: Topology, tcp: TcpSettings, pair: Pair, connections: int) -> tuple[int, int]:
    """Return how much a connection of the pair may hold that is not sent yet, and of a chunk before it is read.

    On a path that holds less than a window what is not sent yet goes at once, and where there is but one connection it
    could go by no other.
    """
    in_flight_bytes = tcp.window_bytes
    one, other = pair
    path_bytes = topology.pair_in_flight_bytes(one.datacenter, other.datacenter)
    roomy = path_bytes is not None and path_bytes <= in_flight_bytes - in_flight_bytes // _UNREAD_PART
    unsent_bytes = in_flight_bytes // (_UNSENT_PART_ALONE if roomy and connections == 1 else _UNSENT_PART)
    return max(UNSENT_BYTES, min(CHUNK_BYTES, unsent_bytes)), max(1, in_flight_bytes // _UNREAD_PART)
