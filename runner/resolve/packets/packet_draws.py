"""Say where a simulation draws what happens to single packets, so that its repeats differ."""

from ground.impairments import UNIMPAIRED
from runner.experiment.transport_spec import TransportSpec
from testbed.network.topology import Topology


def is_impaired(topology: Topology, one: str, other: str) -> bool:
    """Return whether the link between two datacenters impairs packets in either direction, and never changes.

    Packets of a link that changes are not simulated one by one: ``runner.runs.not_modelled`` says what that leaves out.
    """
    ways = ((one, other), (other, one))
    if one == other or any(topology.course(*way) is not None for way in ways):
        return False
    return any(topology.conditions(*way).impairments != UNIMPAIRED for way in ways)


def draws_packets(topology: Topology, transport: TransportSpec) -> bool:
    """Return whether a simulation over this topology draws losses or jitter. An ideal transport has neither."""
    return transport.model == "tcp" and any(is_impaired(topology, *link.between) for link in topology.wan)
