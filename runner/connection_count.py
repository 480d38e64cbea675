"""How many TCP connections join two hosts: as given, or as many as fill the node pair's cap."""

from collections.abc import Iterable
from dataclasses import replace

from runner.demand import connections_to_fill
from runner.experiment_model import Clock, TransportSpec
from runner.placement import Pair
from testbed.calibration import tcp_goodput_bps
from testbed.host_attachment import VIRTUAL_WINDOW_SHARE, TcpSettings
from testbed.topology import Topology


def tcp_settings(transport: TransportSpec, clock: Clock) -> TcpSettings:
    """What a variant's transport asks of the hosts' TCP.

    Windows are held, on the real clock at what a new kernel gives of a large buffer by itself, in virtual time at what
    the kernel there does.
    """
    settings = TcpSettings(transport.window, transport.congestion, transport.slow_start_after_idle)
    return settings if clock == "real" else replace(settings, window_share=VIRTUAL_WINDOW_SHARE)


def window_bps(transport: TransportSpec, clock: Clock, latency_ns: int) -> float:
    """What a single connection moves at most at that one-way latency: what it may have in flight, once per RTT."""
    return tcp_settings(transport, clock).in_flight_bytes * 8 * 1e9 / (2 * latency_ns) if latency_ns else float("inf")


def count_connections(
    topology: Topology, pairs: Iterable[Pair], transport: TransportSpec, clock: Clock
) -> dict[tuple[str, str], int]:
    """Connections for each pair of places, by their two hosts.

    ``auto`` fills the cap of a node pair across the WAN: ``connections_to_fill`` with what one connection moves. Inside
    a datacenter, and where no rate caps the pair, one connection is enough. Dilation changes none of it.
    """
    counts = {}
    for one, other in pairs:
        hosts = (one.host.name, other.host.name)
        if transport.connections != "auto":
            counts[hosts] = transport.connections
            continue
        counts[hosts] = 1
        if one.datacenter != other.datacenter:
            conditions = topology.conditions(one.datacenter, other.datacenter)
            single_bps = window_bps(transport, clock, conditions.latency_ns)
            if conditions.pair_rate_bps is not None and single_bps < float("inf"):
                counts[hosts] = connections_to_fill(tcp_goodput_bps(conditions.pair_rate_bps), single_bps)
    return counts
