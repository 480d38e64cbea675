"""Decide for how long a rank waits for a peer that is silent before it takes it for lost."""

from math import ceil

from wanbed.testbed.network.links.longest_outage import longest_outage_ns
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S

_TIMES = 2
"""TCP doubles its timer from one retransmission to the next: the first one after an outage may come an outage later."""


def peer_timeout_s(topology: Topology) -> int:
    """Return the time of silence, in whole seconds of the testbed's clock, after which a peer is lost.

    It outlasts every outage that the topology, as it is emulated, is known to have: twice the longest one, and then as
    long as where there is none.
    """
    longest_ns = max((longest_outage_ns(link) for link in topology.wan), default=0)
    return PEER_TIMEOUT_S + ceil(_TIMES * longest_ns / 1e9)
