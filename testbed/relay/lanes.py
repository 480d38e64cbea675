"""Decide when data of a node pair leaves: on a lane with a rate of its own, or one that shares trunks and host ports.

Shares are max-min at every instant: the rule of the simulator (``runner/simulator/channels``), and what the gateways'
HTB classes approach. A lane serialises what the connections of one node pair send, first come, first served. Both kinds
of lane report once when a piece's first and last byte leave: a lane whose rate nobody else uses knows it at once, a
shared lane when the piece has left.

An event that is handled late still counts as having happened on time. So what follows from it is not late as well, and
the lateness of timers does not add up.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from tests.support.simulator.fair_share import fair_rates_bps
from wanbed.flow.line import Line
from wanbed.testbed.network.shared_rate import can_bind
from wanbed.testbed.network.topology import Host, Topology

Event = Callable[[int], None]
"""Called with the event's own time (ns)."""


class Timeline:
    """Events in the order of their times; those of one time in the order in which they were added."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, Event]] = []
        self._number = count()

    def at(self, time_ns: int, event: Event) -> None:
        """Handle ``event`` at ``time_ns``, which may have passed."""
        heapq.heappush(self._events, (time_ns, next(self._number), event))

    def handle(self, now_ns: int) -> None:
        """Handle every event until ``now_ns``, also those that are added meanwhile."""
        events = self._events
        while events and events[0][0] <= now_ns:
            time_ns, _, event = heapq.heappop(events)
            event(time_ns)

    @property
    def next_ns(self) -> int | None:
        """The time of the next event, None if there is none."""
        return self._events[0][0] if self._events else None


Left = Callable[[int, int], None]
"""Called once with the times (ns) at which a piece's first and last byte leave, which may be in the future."""


class RelayLane(Protocol):
    """The line from one host to another. ``wire_bytes`` counts what was queued, headers included."""

    line: Line
    wire_bytes: int

    def queue(self, now_ns: int, size_bytes: int, left: Left) -> None:
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


class Sharing(Protocol):
    """The division of shared rates among the lanes that send."""

    def begin(self, lane: "SharedLane", now_ns: int) -> None:
        """Set the rate of ``lane``, which begins to send, and of all lanes that this slows down."""

    def end(self, lane: "SharedLane", now_ns: int) -> None:
        """Handle that ``lane`` has nothing to send any more."""


class SharedLane:
    """A lane that crosses ``resources``, by number, which other lanes cross too. ``most_bps`` is its rate if alone."""

    def __init__(self, line: Line, resources: tuple[int, ...], sharing: Sharing, timeline: Timeline) -> None:
        assert line.rate_bps is not None
        self.line = line
        self.resources = resources
        self.most_bps = line.rate_bps
        self.wire_bytes = 0
        self._sharing = sharing
        self._timeline = timeline
        self._waiting: deque[tuple[int, Left]] = deque()
        self._waiting_bytes = 0
        self._rate_bps = 0
        self._since_ns = 0
        self._first_ns = 0
        self._head_bytes = 0.0
        self._change = 0

    def queue(self, now_ns: int, size_bytes: int, left: Left) -> None:
        """Queue a piece; ``left`` is called when it has left."""
        self.wire_bytes += self.line.wire_bytes(size_bytes)
        if not self._waiting and not size_bytes:
            left(now_ns, now_ns)
            return
        self._waiting.append((size_bytes, left))
        self._waiting_bytes += size_bytes
        if len(self._waiting) == 1:
            # A piece may be let out in the past of an event that has been handled already.
            now_ns = max(now_ns, self._since_ns)
            self._begin_head(now_ns)
            self._rate_bps = 0
            self._sharing.begin(self, now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long the queued bytes still take at the current rate."""
        if not self._waiting:
            return 0
        behind = self._waiting_bytes - self._waiting[0][0]
        left_bytes = max(self._head_bytes, 0.0) + behind
        gone_ns = max(now_ns - self._since_ns, 0)
        return max(self.line.duration_ns(int(left_bytes), self._rate_bps or self.most_bps) - gone_ns, 0)

    def send_at(self, rate_bps: int, now_ns: int) -> None:
        """Send at ``rate_bps`` from now on."""
        if rate_bps == self._rate_bps:
            return
        self._progress(now_ns)
        self._rate_bps = rate_bps
        self._await_head()

    def _begin_head(self, now_ns: int) -> None:
        self._first_ns = self._since_ns = now_ns
        self._head_bytes = float(self._waiting[0][0])

    def _progress(self, now_ns: int) -> None:
        if self._rate_bps:
            per_byte_ns = self.line.duration_ns(1_000_000, self._rate_bps) / 1e6
            self._head_bytes -= max(now_ns - self._since_ns, 0) / per_byte_ns
        self._since_ns = max(now_ns, self._since_ns)

    def _await_head(self) -> None:
        self._change += 1
        change = self._change
        end_ns = self._since_ns + self.line.duration_ns(max(round(self._head_bytes), 0), self._rate_bps)
        self._timeline.at(end_ns, lambda time_ns: self._end_head(time_ns, change))

    def _end_head(self, now_ns: int, change: int) -> None:
        if change != self._change:
            return
        size_bytes, left = self._waiting.popleft()
        self._waiting_bytes -= size_bytes
        first_ns = self._first_ns
        if self._waiting:
            self._begin_head(now_ns)
            self._await_head()
        else:
            self._change += 1
            self._since_ns = now_ns
            self._sharing.end(self, now_ns)
        left(first_ns, now_ns)


class SharedRates:
    """Resources with these capacities, by number, and the lanes that send over each of them now.

    A resource is limiting only while its senders could together use more than its capacity.
    """

    def __init__(self, capacities_bps: Mapping[int, int]) -> None:
        self._capacities_bps = dict(capacities_bps)
        self._sending: dict[int, dict[SharedLane, None]] = {resource: {} for resource in capacities_bps}
        self._offered_bps = dict.fromkeys(capacities_bps, 0)

    def begin(self, lane: SharedLane, now_ns: int) -> None:
        """Set the rate of ``lane``, which begins to send, and of all lanes that this slows down."""
        for resource in lane.resources:
            self._sending[resource][lane] = None
            self._offered_bps[resource] += lane.most_bps
        self._share({lane: None}, now_ns)

    def end(self, lane: SharedLane, now_ns: int) -> None:
        """Let the lanes that shared a resource with ``lane`` have its part."""
        affected: dict[SharedLane, None] = {}
        for resource in lane.resources:
            if self._limits(resource):
                affected |= self._sending[resource]
        affected.pop(lane, None)
        for resource in lane.resources:
            del self._sending[resource][lane]
            self._offered_bps[resource] -= lane.most_bps
        if affected:
            self._share(affected, now_ns)

    def _limits(self, resource: int) -> bool:
        return self._offered_bps[resource] > self._capacities_bps[resource]

    def _share(self, lanes: dict[SharedLane, None], now_ns: int) -> None:
        """Set the rates of ``lanes`` and of all others that share limiting resources with them."""
        affected = dict(lanes)
        limiting: set[int] = set()
        unseen = list(lanes)
        while unseen:
            for resource in unseen.pop().resources:
                if resource not in limiting and self._limits(resource):
                    limiting.add(resource)
                    unseen += [lane for lane in self._sending[resource] if lane not in affected]
                    affected |= self._sending[resource]
        # A lane's own rate is a resource that it shares with none; negative numbers are free for these.
        capacities_bps = {resource: self._capacities_bps[resource] for resource in limiting}
        flows = []
        for number, lane in enumerate(affected, start=1):
            capacities_bps[-number] = lane.most_bps
            flows.append((-number, *(resource for resource in lane.resources if resource in limiting)))
        for lane, rate_bps in zip(affected, fair_rates_bps(flows, capacities_bps), strict=True):
            lane.send_at(rate_bps, now_ns)


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
    line = Line(topology.line_rate_bps(here, there), path.latency_ns, True, back.latency_ns, topology.mtu_bytes)
    trunk = () if here == there else ((here, there),)
    return _Crossing(line, (*trunk, (other.name,)))


def _capacity_bps(topology: Topology, resource: Resource) -> int | None:
    return topology.intra_rate_bps if len(resource) == 1 else topology.conditions(*resource).rate_bps


def _lane(crossing: _Crossing, numbers: dict[Resource, int], sharing: SharedRates, timeline: Timeline) -> RelayLane:
    shared = tuple(numbers[each] for each in crossing.resources if each in numbers)
    return SharedLane(crossing.line, shared, sharing, timeline) if shared else OwnLane(crossing.line)
