"""Give the channels of a simulation the courses of the links that they cross."""

from collections.abc import Callable, Sequence
from functools import partial

from wanbed.runner.resolve.placement import Pair
from wanbed.runner.simulator.network.changing.capacity_course import CapacityCourse
from wanbed.runner.simulator.network.changing.changing_path import ChangingPath, constant, pair_bps, trunk_bps
from wanbed.runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.topology import Topology


def changing_path(topology: Topology, ends: Pair, *, headers: bool) -> ChangingPath | None:
    """Return the path between two places if its link changes in one of the directions, else None."""
    one, other = ends[0].datacenter, ends[1].datacenter
    if one == other:
        return None
    there, back = topology.course(one, other), topology.course(other, one)
    if there is None and back is None:
        return None
    return ChangingPath(
        there or constant(topology.conditions(one, other)),
        back or constant(topology.conditions(other, one)),
        topology.intra_rate_bps,
        headers,
    )


def pair_range_bps(path: ChangingPath) -> tuple[int, int]:
    """Return the least and the largest capacity that a node pair ever has."""
    rates_bps = [pair_bps(conditions) for conditions in path.there.distinct]
    return min(rates_bps), max(rates_bps)


def trunk_range_bps(path: ChangingPath) -> tuple[int, int] | None:
    """Return the least and the largest capacity that the trunk ever has, None if it never has a limit."""
    if all(conditions.rate_bps is None for conditions in path.there.distinct):
        return None
    rates_bps = [trunk_bps(conditions) for conditions in path.there.distinct]
    return min(rates_bps), max(rates_bps)


def follow(
    capacity: SharedCapacity,
    path: ChangingPath,
    number: int,
    flows: Sequence[NodePairFlow],
    bps_of: Callable[[LinkConditions], int],
) -> None:
    """Let the capacity of a node pair or a trunk, which ``flows`` cross, change as the link does.

    ``number`` is that of the resource, ``bps_of`` gives its capacity under some conditions.
    """
    if len(path.there.changes) > 1:
        course = CapacityCourse(
            capacity.events, path.there, bps_of, partial(_change, capacity, number, flows), partial(_sends, flows)
        )
        for flow in flows:
            flow.courses.append(course)


def _change(capacity: SharedCapacity, number: int, flows: Sequence[NodePairFlow], bps: int, now_ns: int) -> None:
    capacity.change(number, bps, flows, now_ns)


def _sends(flows: Sequence[NodePairFlow]) -> bool:
    return any(flow.sending for flow in flows)
