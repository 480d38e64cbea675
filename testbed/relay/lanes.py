"""Decide when data of a node pair leaves: on a lane with a rate of its own, or one that shares trunks and host ports.

Shares are max-min at every instant, by the arithmetic that the simulator uses too, and that the gateways' HTB classes
approach. A lane serialises what the connections of one node pair send, first come, first served. Both kinds of lane
report once when a piece's first and last byte leave: a lane whose rate nobody else uses knows it at once, a shared lane
when the piece has left.

An event that is handled late still counts as having happened on time. So what follows from it is not late as well, and
the lateness of timers does not add up.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from wanbed.flow.channel import Left, Transfer
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.stream import Sender
from wanbed.testbed.network.shared_rate import can_bind
from wanbed.testbed.network.topology import Host, Topology


class RelayLane(Protocol):
    """The line from one host to another. ``wire_bytes`` counts what was queued, headers included."""

    line: Line
    wire_bytes: int

    def queue(self, now_ns: int, size_bytes: int, left: Left, /) -> None:
        """Queue a piece of ``size_bytes`` of payload, 0 for the end of a connection."""

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a byte that is queued now waits for those before it."""


class OwnLane:
    """A lane with a rate of its own, or with none."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.wire_bytes = 0
        self._free_ns = 0

    def queue(self, now_ns: int, size_bytes: int, left: Left) -> None:
        """Queue a piece; ``left`` is called at once."""
        self.wire_bytes += self.line.wire_bytes(size_bytes)
        start_ns = max(now_ns, self._free_ns)
        self._free_ns = start_ns + self.line.duration_ns(size_bytes)
        left(start_ns, self._free_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long the line is still busy."""
        return max(self._free_ns - now_ns, 0)


class SharedLane(Sender):
    """A lane that shares resources with others. ``flow`` has those on its path."""

    def __init__(self, line: Line, flow: NodePairFlow, capacity: SharedCapacity) -> None:
        assert line.rate_bps is not None
        super().__init__(capacity.events, line, keeps_history=False)
        self.wire_bytes = 0
        self.flow = flow
        self._most_bps: int = line.rate_bps
        self._capacity = capacity
        self._waiting: deque[Transfer] = deque()
        self._waiting_bytes = 0
        self._first_ns = 0
        self._ended_ns = 0
        capacity.expect(flow)

    def send(self, transfer: Transfer) -> None:
        """Queue a piece, which is told when it has left."""
        now_ns, size_bytes = transfer.available_ns, transfer.size_bytes
        self.wire_bytes += self.line.wire_bytes(size_bytes)
        if not self._waiting and not size_bytes:
            transfer.left(now_ns, now_ns)
            return
        self._waiting.append(transfer)
        self._waiting_bytes += size_bytes
        if len(self._waiting) == 1:
            # A piece may have been let out before an event that has been handled already.
            self._begin_head(max(now_ns, self._ended_ns))

    def wait_ns(self, now_ns: int) -> int:
        """Return how long the queued bytes still take at the current rate."""
        if not self._waiting:
            return 0
        behind_bytes = self._waiting_bytes - self._waiting[0].size_bytes
        left_bits_ns = self.left_bits_ns(now_ns) + behind_bytes * self.bits_ns_per_byte
        return max(left_bits_ns // (self.payload_share * (self.rate_bps or self._most_bps)), 0)

    def begins(self, now_ns: int, turn: int) -> None:
        """Note when the first byte of a piece leaves."""
        self._first_ns = now_ns

    def ends(self, now_ns: int) -> None:
        """Report that a piece has left, and begin the next one."""
        gone = self._waiting.popleft()
        self._waiting_bytes -= gone.size_bytes
        first_ns, self._ended_ns = self._first_ns, now_ns
        self._capacity.stop(self, self.flow, now_ns)
        if self._waiting:
            self._begin_head(now_ns)
        gone.left(first_ns, now_ns)

    def _begin_head(self, now_ns: int) -> None:
        self.load(self._waiting[0].size_bytes, 0, now_ns)
        self._capacity.begin(self, self.flow, now_ns)


Resource = tuple[str, ...]
"""A trunk by its two datacenters, or a host's port by the host."""


@dataclass(frozen=True)
class _Crossing:
    """``resources`` are a host's port and then the trunk, if any."""

    line: Line
    resources: tuple[Resource, ...]


def lanes(topology: Topology, events: EventQueue) -> dict[tuple[str, str], RelayLane]:
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
    sharing = [ends for ends, each in crossings.items() if not set(binding).isdisjoint(each.resources)]
    # Numbers of the lanes' own rates are the lowest, then those of ports, then those of trunks.
    numbers = {each: len(sharing) + place for place, each in enumerate(sorted(binding, key=len))}
    capacities_bps = {number: crossings[ends].line.rate_bps or 0 for number, ends in enumerate(sharing)}
    capacities_bps |= {number: _capacity_bps(topology, each) or 0 for each, number in numbers.items()}
    ports = [number for each, number in numbers.items() if len(each) == 1]
    capacity = SharedCapacity(events, capacities_bps, own=range(len(sharing)), ports=ports)
    found: dict[tuple[str, str], RelayLane] = {ends: OwnLane(each.line) for ends, each in crossings.items()}
    for number, ends in enumerate(sharing):
        shared = [numbers[each] for each in crossings[ends].resources if each in numbers]
        found[ends] = SharedLane(crossings[ends].line, NodePairFlow(number, (number, *shared)), capacity)
    return found


def _pairs(topology: Topology) -> Iterator[tuple[Host, Host]]:
    return ((one, other) for one in topology.hosts for other in topology.hosts if one.name != other.name)


def _crossing(topology: Topology, one: Host, other: Host) -> _Crossing:
    here, there = one.datacenter, other.datacenter
    path, back = topology.path(here, there), topology.path(there, here)
    line = Line(topology.line_rate_bps(here, there), path.latency_ns, True, back.latency_ns, topology.mtu_bytes)
    trunk = () if here == there else ((here, there),)
    return _Crossing(line, ((other.name,), *trunk))


def _capacity_bps(topology: Topology, resource: Resource) -> int | None:
    return topology.intra_rate_bps if len(resource) == 1 else topology.conditions(*resource).rate_bps
