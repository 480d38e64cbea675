"""Give the channels of a simulation the courses of the links that they cross."""

from collections.abc import Sequence
from functools import partial

from runner.resolve.placement import Pair
from runner.simulator.event_queue import EventQueue
from runner.simulator.network.changing.capacity_course import CapacityCourse
from runner.simulator.network.changing.changing_channel import ChangingChannel
from runner.simulator.network.changing.changing_path import ChangingPath, constant, pair_bps, trunk_bps
from runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from testbed.network.topology import Topology


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


def follow_pair(
    events: EventQueue, capacity: SharedCapacity, path: ChangingPath, number: int, flow: NodePairFlow
) -> None:
    """Let the capacity of a node pair change as its link does. ``number`` is that of the resource."""
    if len(path.there.changes) > 1:
        flow.courses.append(
            CapacityCourse(
                events,
                path.there,
                pair_bps,
                partial(_change, capacity, number, [flow]),
                waiting=partial(_waiting, flow),
                is_sending=partial(_sends, [flow]),
                is_trunk=False,
            )
        )


def follow_trunk(
    events: EventQueue,
    capacity: SharedCapacity,
    path: ChangingPath,
    number: int,
    flows: Sequence[NodePairFlow],
    *,
    parts: int,
) -> None:
    """Let the capacity of a trunk, which ``flows`` cross, change as the link does; it is divided by ``parts``."""
    if len(path.there.changes) > 1:
        course = CapacityCourse(
            events,
            path.there,
            lambda conditions: max(trunk_bps(conditions) // parts, 1),
            partial(_change, capacity, number, flows),
            waiting=_nothing,
            is_sending=partial(_sends, flows),
            is_trunk=True,
        )
        for flow in flows:
            flow.courses.append(course)


def _change(capacity: SharedCapacity, number: int, flows: Sequence[NodePairFlow], bps: int, now_ns: int) -> None:
    capacity.change(number, bps, flows, now_ns)


def _sends(flows: Sequence[NodePairFlow]) -> bool:
    return any(flow.sending for flow in flows)


def _nothing(_: int) -> tuple[int, int]:
    return 0, 0


def _waiting(flow: NodePairFlow, now_ns: int) -> tuple[int, int]:
    """Return what the line has accepted and not carried yet, and at which rate it carries it."""
    waiting = (channel.waiting_bits_ns(now_ns) for channel in flow.sending if isinstance(channel, ChangingChannel))
    return sum(waiting), flow.rate_bps
