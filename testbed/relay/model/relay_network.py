"""Make the lanes of a topology: which rates each node pair has for itself, and which ones it shares."""

from collections.abc import Iterator
from dataclasses import dataclass

from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.shared_rate import can_bind
from wanbed.testbed.network.topology import Host, Topology
from wanbed.testbed.relay.model.lanes import OwnLane, RelayLane, SharedLane
from wanbed.testbed.relay.model.shared_rates import SharedRates
from wanbed.testbed.relay.model.timeline import Timeline

Resource = tuple[str, ...]
"""A trunk by its two datacenters, or a host's port by the host."""


@dataclass(frozen=True)
class _Crossing:
    line: Line
    resources: tuple[Resource, ...]


def lanes(topology: Topology, timeline: Timeline) -> dict[tuple[str, str], RelayLane]:
    """Return the lane from every host to every other one, by their names.

    The resources are those of the gateways: a node pair's rate, the trunk of two datacenters, and the port of the
    receiving host, each in wire bytes. A trunk or port counts only if its senders can exceed it.
    """
    crossings = {(one.name, other.name): _crossing(topology, one, other) for one, other in _pairs(topology)}
    offered: dict[Resource, list[int | None]] = {}
    for each in crossings.values():
        for resource in each.resources:
            offered.setdefault(resource, []).append(each.line.rate_bps)
    binding = [each for each, rates_bps in offered.items() if can_bind(_capacity_bps(topology, each), rates_bps)]
    numbers = {resource: number for number, resource in enumerate(binding)}
    sharing = SharedRates({number: _capacity_bps(topology, each) or 0 for each, number in numbers.items()})
    return {ends: _lane(each, numbers, sharing, timeline) for ends, each in crossings.items()}


def _pairs(topology: Topology) -> Iterator[tuple[Host, Host]]:
    return ((one, other) for one in topology.hosts for other in topology.hosts if one.name != other.name)


def _crossing(topology: Topology, one: Host, other: Host) -> _Crossing:
    here, there = one.datacenter, other.datacenter
    path, back = topology.path(here, there), topology.path(there, here)
    line = Line(topology.line_rate_bps(here, there), path.latency_ns, headers=True, back_ns=back.latency_ns)
    trunk = () if here == there else ((here, there),)
    return _Crossing(line, (*trunk, (other.name,)))


def _capacity_bps(topology: Topology, resource: Resource) -> int | None:
    return topology.intra_rate_bps if len(resource) == 1 else topology.conditions(*resource).rate_bps


def _lane(crossing: _Crossing, numbers: dict[Resource, int], sharing: SharedRates, timeline: Timeline) -> RelayLane:
    shared = tuple(numbers[each] for each in crossing.resources if each in numbers)
    return SharedLane(crossing.line, shared, sharing, timeline) if shared else OwnLane(crossing.line)
