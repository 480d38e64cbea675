"""Count the TCP connections between two hosts: the configured number, or as many as fill the node pair's cap."""

from collections.abc import Iterable
from dataclasses import dataclass

from wanbed.runner.experiment.quantities import MAX_CONNECTIONS
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.demand import connections_to_fill, connections_wanted
from wanbed.runner.resolve.placement import Pair
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology


def tcp_settings(transport: TransportSpec) -> TcpSettings:
    """Return the TCP settings of the hosts for a variant's transport."""
    return TcpSettings(transport.window, transport.congestion, transport.slow_start_after_idle)


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
    counts = {}
    for one, other in pairs:
        hosts = (one.host.name, other.host.name)
        if transport.connections != "auto":
            counts[hosts] = transport.connections
            continue
        rates_bps = _rates_bps(topology, (one, other), transport)
        counts[hosts] = 1 if rates_bps is None else connections_to_fill(*rates_bps)
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
    found = {}
    for pair in pairs:
        rates_bps = _rates_bps(topology, pair, transport) if transport.connections == "auto" else None
        if rates_bps is not None and (wanted := connections_wanted(*rates_bps)) > MAX_CONNECTIONS:
            hosts = (pair[0].host.name, pair[1].host.name)
            found[hosts] = CutPair(hosts, wanted, min(MAX_CONNECTIONS * rates_bps[1] / rates_bps[0], 1.0))
    return tuple(found.values())


def _rates_bps(topology: Topology, pair: Pair, transport: TransportSpec) -> tuple[float, float] | None:
    """Return the goodput of a node pair and the rate of one connection, None if one connection is enough.

    Of two directions with different rates it is the faster one: connections carry both.
    """
    one, other = pair
    if one.datacenter == other.datacenter:
        return None
    ends = (one.datacenter, other.datacenter)
    single_bps = window_bps(transport, topology.rtt_ns(*ends))
    rates_bps = [rate for way in (ends, ends[::-1]) if (rate := topology.line_rate_bps(*way)) is not None]
    if not rates_bps or single_bps == float("inf"):
        return None
    return tcp_goodput_bps(max(rates_bps)), single_bps
