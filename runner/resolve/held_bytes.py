"""Compute how many bytes a rank's connection holds: written but not sent, and arrived but not read."""

from typing import Final

from wanbed.runner.resolve.placement import Pair
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.transport.frames.frame import CHUNK_BYTES
from wanbed.workloads.transport.peer import UNSENT_BYTES

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
