"""Refuse topologies that a relay cannot carry."""

from wanbed.ground.impairments import IMPAIRMENTS, UNIMPAIRED
from wanbed.ground.strict_model import InputError
from wanbed.testbed.network.topology import Topology, check_does_not_change


def check_can_be_relayed(topology: Topology) -> None:
    """Raise InputError for links that change, and for impairments: a relay has no packets to lose or overtake."""
    check_does_not_change(topology, "--substrate relay", "a relay", "use netem (--substrate kernel or guest)")
    for link in topology.wan:
        for (source, destination), conditions in link.directions:
            for each in IMPAIRMENTS:
                if getattr(conditions.impairments, each.field) != getattr(UNIMPAIRED, each.field):
                    raise InputError(
                        f"--substrate relay: {source} to {destination} has {each.name}, which a relay does not model: "
                        "leave it out, or use netem (--substrate kernel or guest)"
                    )
