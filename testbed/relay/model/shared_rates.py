"""Share trunks and host ports between the node pairs that send over them: max-min at every instant.

That is the rule of the simulator (``runner/simulator/channels``), and what the gateways' HTB classes approach.
"""

from collections.abc import Mapping

from wanbed.testbed.network.flow_model.fair_share import fair_rates_bps
from wanbed.testbed.relay.model.lanes import SharedLane


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
