"""Resources that several node pairs cross, and how each of them gets its max-min fair share at every instant.

A resource is a node pair, a trunk or a host's port. It is shared between node pairs, as the testbed's queues do it, and
what a node pair gets is split evenly between its channels that send. Whenever a node pair begins or stops to send, the
rates of all that it could affect are worked out anew.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from runner.simulator.event_queue import EventQueue
from runner.simulator.fair_share import fair_rates_bps


class Sender(Protocol):
    """A channel while it sends."""

    def send_at(self, rate_bps: int, now_ns: int) -> None:
        """From now on it sends at this rate."""


class NodePairFlow:
    """All channels from one host to another; ``number`` breaks ties and differs between node pairs."""

    __slots__ = ("number", "rate_bps", "resources", "sending")

    def __init__(self, number: int, resources: Sequence[int]) -> None:
        self.number = number
        self.resources = tuple(resources)
        self.sending: dict[Sender, None] = {}
        self.rate_bps = 0

    def split(self, now_ns: int) -> None:
        """Tell every channel that sends its part, in whole bit/s, at least 1."""
        part_bps = max(self.rate_bps // len(self.sending), 1)
        for channel in self.sending:
            channel.send_at(part_bps, now_ns)


class SharedCapacity:
    """The resources of one simulation, by number, and which node pairs send over each of them now."""

    def __init__(self, events: EventQueue, capacities_bps: Mapping[int, int]) -> None:
        self.events = events
        self._capacities_bps = capacities_bps
        self._sending: dict[int, dict[NodePairFlow, None]] = {resource: {} for resource in capacities_bps}

    def begin(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """From now on ``channel`` sends, as one of ``flow``."""
        flow.sending[channel] = None
        if len(flow.sending) > 1:
            flow.split(now_ns)
            return
        for resource in flow.resources:
            self._sending[resource][flow] = None
        self._share(flow.resources, now_ns)

    def stop(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """``channel`` sends no more."""
        del flow.sending[channel]
        if flow.sending:
            flow.split(now_ns)
            return
        flow.rate_bps = 0
        for resource in flow.resources:
            del self._sending[resource][flow]
        self._share(flow.resources, now_ns)

    def _share(self, touched: Sequence[int], now_ns: int) -> None:
        affected: dict[NodePairFlow, None] = {}
        resources, open_resources = set(touched), list(touched)
        while open_resources:
            for flow in self._sending[open_resources.pop()]:
                if flow not in affected:
                    affected[flow] = None
                    for resource in flow.resources:
                        if resource not in resources:
                            resources.add(resource)
                            open_resources.append(resource)
        flows = sorted(affected, key=lambda flow: flow.number)
        if not flows:
            return
        rates_bps = fair_rates_bps([flow.resources for flow in flows], self._capacities_bps)
        for flow, rate_bps in zip(flows, rates_bps, strict=True):
            if rate_bps != flow.rate_bps:
                flow.rate_bps = rate_bps
                flow.split(now_ns)
