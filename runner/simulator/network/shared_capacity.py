"""Share resources between the node pairs that cross them: each gets its max-min fair share at every instant.

A resource is a node pair, a trunk or a host's port. It is shared between node pairs, as by the testbed's queues. A node
pair's rate is split evenly between its channels that send; bursts that windows have let out at once are served first
come, first served. Whenever node pairs begin or stop sending, the rates of all affected node pairs are recomputed, once
for all changes of one instant.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from runner.simulator.event_queue import EventQueue
from testbed.network.flow_model.fair_share import fair_rates_bps


class Sender(Protocol):
    """A channel while it sends."""

    is_burst: bool
    """Whether its windows have let out at once what it sends now, so that it is served first come, first served."""

    def send_at(self, rate_bps: int, now_ns: int) -> None:
        """Send at ``rate_bps`` from now on."""

    def queued_bits_ns(self, now_ns: int) -> int:
        """Return what its windows have let out and the line has not carried yet, in wire bits x 10^9."""


class NodePairFlow:
    """All channels from one host to another. ``number`` is unique and breaks ties.

    ``opposite`` is the flow of the other direction, behind whose bytes acknowledgements wait; None where the wait is
    not noticeable.
    """

    __slots__ = ("number", "opposite", "rate_bps", "resources", "sending")

    def __init__(self, number: int, resources: Sequence[int]) -> None:
        self.number = number
        self.resources = tuple(resources)
        self.sending: dict[Sender, None] = {}
        self.rate_bps = 0
        self.opposite: NodePairFlow | None = None

    def acknowledged_later_ns(self, now_ns: int) -> int | None:
        """Return how long an acknowledgement sent now waits for the bytes queued before it.

        Return None while the opposite direction sends but has no rate yet.
        """
        if self.opposite is None or not self.opposite.sending:
            return 0
        if not self.opposite.rate_bps:
            return None
        return sum(channel.queued_bits_ns(now_ns) for channel in self.opposite.sending) // self.opposite.rate_bps

    def split(self, now_ns: int) -> None:
        """Set the rate of every channel that sends: an equal part in whole bit/s, at least 1.

        Bursts are served one after the other: the first one has the parts of all bursts.
        """
        part_bps = max(self.rate_bps // len(self.sending), 1)
        bursts = [channel for channel in self.sending if channel.is_burst]
        for channel in self.sending:
            if not channel.is_burst:
                channel.send_at(part_bps, now_ns)
        first_bps = self.rate_bps - part_bps * (len(self.sending) - len(bursts))
        for position, channel in enumerate(bursts):
            channel.send_at(0 if position else max(first_bps, 1), now_ns)


class SharedCapacity:
    """The resources of one simulation, by number, and the node pairs that send over each of them now.

    A resource is limiting only while its senders could together use more than its capacity, where each sender uses at
    most the capacity of the narrowest other resource on its path. Resources that are not limiting are ignored.
    """

    def __init__(self, events: EventQueue, capacities_bps: Mapping[int, int]) -> None:
        self.events = events
        self._capacities_bps = capacities_bps
        self._sending: dict[int, dict[NodePairFlow, None]] = {resource: {} for resource in capacities_bps}
        self._configured_bps = dict.fromkeys(capacities_bps, 0)
        self._most_bps: dict[NodePairFlow, list[int]] = {}
        self._touched: dict[NodePairFlow, None] = {}
        self._freed: set[int] = set()

    def begin(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """Let ``channel`` of ``flow`` send from now on. It gets its rate at the same instant."""
        flow.sending[channel] = None
        if len(flow.sending) == 1:
            if flow not in self._most_bps:
                self._most_bps[flow] = [self._most_of(flow, resource) for resource in flow.resources]
            for resource, most_bps in zip(flow.resources, self._most_bps[flow], strict=True):
                self._sending[resource][flow] = None
                self._configured_bps[resource] += most_bps
        self._touch(flow, now_ns)

    def stop(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """Handle that ``channel`` of ``flow`` has stopped sending."""
        del flow.sending[channel]
        if not flow.sending:
            flow.rate_bps = 0
            for resource, most_bps in zip(flow.resources, self._most_bps[flow], strict=True):
                if self._limits(resource):
                    self._freed.add(resource)
                del self._sending[resource][flow]
                self._configured_bps[resource] -= most_bps
        self._touch(flow, now_ns)

    def _most_of(self, flow: NodePairFlow, resource: int) -> int:
        """Return the most that a flow can use of a resource, given the other resources on its path.

        That is more than the resource's capacity if no other one is narrower. Of equally narrow resources only the one
        with the lowest number counts as limiting.
        """
        own_bps = self._capacities_bps[resource]
        return min(
            (
                self._capacities_bps[each] + (self._capacities_bps[each] == own_bps and each > resource)
                for each in flow.resources
                if each != resource
            ),
            default=own_bps + 1,
        )

    def _limits(self, resource: int) -> bool:
        return self._configured_bps[resource] > self._capacities_bps[resource]

    def _touch(self, flow: NodePairFlow, now_ns: int) -> None:
        if not self._touched:
            self.events.at(now_ns, self._share, None)
        self._touched[flow] = None

    def _share(self, now_ns: int, _: None) -> None:
        touched, self._touched = self._touched, {}
        freed, self._freed = self._freed, set()
        affected = {flow: None for flow in touched if flow.sending}
        limiting = {each for flow in touched for each in flow.resources if each in freed or self._limits(each)}
        open_resources = list(limiting)
        while open_resources:
            for flow in self._sending[open_resources.pop()]:
                affected[flow] = None
                for resource in flow.resources:
                    if resource not in limiting and self._limits(resource):
                        limiting.add(resource)
                        open_resources.append(resource)
        flows = sorted(affected, key=lambda flow: flow.number)
        if not flows:
            return
        crossed = [[each for each in flow.resources if each in limiting and self._limits(each)] for flow in flows]
        limited = [(flow, resources) for flow, resources in zip(flows, crossed, strict=True) if resources]
        rates_bps = fair_rates_bps([resources for _, resources in limited], self._capacities_bps)
        shares_bps = dict(zip((flow for flow, _ in limited), rates_bps, strict=True))
        for flow in flows:
            rate_bps = shares_bps[flow] if flow in shares_bps else min(self._capacities_bps[r] for r in flow.resources)
            if rate_bps != flow.rate_bps or flow in touched:
                flow.rate_bps = rate_bps
                flow.split(now_ns)
