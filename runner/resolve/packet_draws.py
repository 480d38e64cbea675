"""Say where a simulation follows single packets, and where it draws what happens to them."""

from wanbed.flow.packets.packet import ACKNOWLEDGED_SEGMENTS, ACKNOWLEDGEMENT_BYTES
from wanbed.ground.impairments import UNIMPAIRED
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES
from wanbed.testbed.network.topology import Topology

_NOTICED_PART = 10


def is_impaired(topology: Topology, one: str, other: str) -> bool:
    """Return whether the link between two datacenters impairs packets in either direction, and never changes.

    Packets of a link that changes are not simulated one by one: ``wanbed.runner.runs.not_modelled`` says what that
    leaves out.
    """
    ways = ((one, other), (other, one))
    if one == other or any(topology.course(*way) is not None for way in ways):
        return False
    return any(topology.conditions(*way).impairments != UNIMPAIRED for way in ways)


def has_narrow_way(topology: Topology, one: str, other: str) -> bool:
    """Return whether acknowledgements need more than a tenth of a direction's rate (RFC 3449), and it never changes."""
    ways = ((one, other), (other, one))
    rates_bps = [rate_bps for way in ways if (rate_bps := topology.line_rate_bps(*way)) is not None]
    if one == other or len(rates_bps) < len(ways) or any(topology.course(*way) is not None for way in ways):
        return False
    frame_bytes = topology.mtu_bytes + ETHERNET_HEADER_BYTES
    needed_bps = max(rates_bps) * ACKNOWLEDGEMENT_BYTES / (ACKNOWLEDGED_SEGMENTS * frame_bytes)
    return needed_bps * _NOTICED_PART > min(rates_bps)


def draws_packets(topology: Topology, transport: TransportSpec) -> bool:
    """Return whether a simulation over this topology draws losses or jitter. An ideal transport has neither."""
    return transport.model != "ideal" and any(is_impaired(topology, *link.between) for link in topology.wan)
