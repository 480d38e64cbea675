"""Say where a simulation draws what happens to single packets, so that its repeats differ."""

from ground.impairments import UNIMPAIRED
from runner.experiment.transport_spec import TransportSpec
from testbed.network.topology import Topology


def is_impaired(topology: Topology, one: str, other: str) -> bool:
    """Return whether the link between two datacenters impairs packets in either direction."""
    if one == other:
        return False
    return any(topology.conditions(*way).impairments != UNIMPAIRED for way in ((one, other), (other, one)))


def draws_packets(topology: Topology, transport: TransportSpec) -> bool:
    """Return whether a simulation over this topology draws losses or jitter. An ideal transport has neither."""
    return transport.model == "tcp" and any(is_impaired(topology, *link.between) for link in topology.wan)
