"""From a topology to the channels between ranks: what each crosses, and with whom it shares."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from runner.placement import StagePlace
from runner.resolved_variant import ResolvedVariant
from runner.simulator.channel import Channel, PrivateChannel
from runner.simulator.dealing import NarrowestConnection
from runner.simulator.event_queue import EventQueue
from runner.simulator.line import Line
from runner.simulator.shared_channel import SharedCapacity, SharedChannel
from runner.simulator.tcp_effects import TcpEffects
from runner.simulator.tcp_window import INITIAL_SEGMENTS, LEAST_TIMEOUT_NS, SEGMENT_BYTES, TcpWindow
from testbed.topology import Topology

Ends = tuple[StagePlace, StagePlace]
"""Who sends, and to whom."""

Resource = tuple[str, str, str]
"""A kind (``node_pair``, ``trunk``, ``port``) and its ends; a port has one, and an empty name."""


@dataclass(frozen=True)
class Network:
    """What the channels of one simulation are made of.

    Across the WAN the hosts of a node pair share its cap, and the pairs of two datacenters their trunk; inside a
    datacenter what goes to one host shares its port, and hosts do not slow down what they send. Places on one host
    exchange at once. ``trunk_share`` is the part of each trunk that is there for this simulation: 1/n of it where n
    equal ones use it. ``dilation`` is that of an emulation to be compared with: TCP's timers are the only thing that it
    does not slow down, so that they are shorter by it here.
    """

    topology: Topology
    connections: Mapping[tuple[str, str], int]
    variant: ResolvedVariant
    effects: TcpEffects
    trunk_share: int = 1
    dilation: float = 1.0

    def line(self, ends: Ends) -> Line:
        """What joins the two, with all its rate."""
        one, other = ends
        if one.host == other.host:
            return Line(None, 0, self.effects.headers)
        if one.datacenter == other.datacenter:
            return self.intra_line
        conditions = self.topology.conditions(one.datacenter, other.datacenter)
        rate_bps = conditions.pair_rate_bps
        return Line(rate_bps, conditions.latency_ns, self.effects.headers)

    @property
    def intra_line(self) -> Line:
        """What joins two hosts of one datacenter."""
        return Line(self.topology.intra_rate_bps, self.topology.intra_latency_ns, self.effects.headers)

    def connections_between(self, ends: Ends) -> int:
        """How many TCP connections join the two hosts."""
        hosts = (ends[0].host.name, ends[1].host.name)
        return self.connections[hosts if hosts in self.connections else hosts[::-1]]

    def window(self, ends: Ends) -> TcpWindow:
        """The TCP connections between the two, as they are when they have just been opened."""
        settings, effects = self.variant.tcp, self.effects
        line = self.line(ends)
        # No round trip, nothing to wait for: a window of any size is as good as none.
        counts = line.latency_ns > 0
        connections = self.connections_between(ends)
        window_bytes = settings.in_flight_bytes if counts and effects.window else None
        initial_bytes = INITIAL_SEGMENTS * SEGMENT_BYTES if counts and effects.slow_start else None
        return TcpWindow(
            2 * line.latency_ns,
            None if window_bytes is None else connections * window_bytes,
            None if initial_bytes is None else connections * initial_bytes,
            restarts=settings.restarts_after_idle,
            least_timeout_ns=round(LEAST_TIMEOUT_NS / self.dilation),
            narrowest=NarrowestConnection(window_bytes, initial_bytes) if connections > 1 and initial_bytes else None,
        )

    def channels(self, wanted: Iterable[Ends], events: EventQueue) -> dict[Ends, Channel]:
        """A channel for each of ``wanted``, which are all that there will be."""
        ends = sorted(wanted, key=lambda pair: (pair[0].pipeline, pair[0].stage, pair[1].pipeline, pair[1].stage))
        crossed = {pair: self._resources(pair) for pair in ends}
        binding = self._binding(crossed)
        numbers = {resource: number for number, resource in enumerate(sorted(binding))}
        capacity = SharedCapacity(events, {numbers[resource]: rate_bps for resource, rate_bps in binding.items()})
        users = Counter(resource for resources in crossed.values() for resource in resources if resource in binding)
        channels: dict[Ends, Channel] = {}
        for number, pair in enumerate(ends):
            own = [resource for resource in crossed[pair] if resource in binding]
            if any(users[resource] > 1 for resource in own):
                shared = sorted(numbers[resource] for resource in own)
                channels[pair] = SharedChannel(number, self.line(pair), self.window(pair), shared, capacity)
            else:
                # The window is held against the whole line, as that of a channel that shares a trunk is.
                whole = self.line(pair)
                line = replace(whole, rate_bps=min((binding[resource] for resource in own), default=None))
                channels[pair] = PrivateChannel(line, self.window(pair), whole.payload_per_rtt())
        return channels

    def _resources(self, ends: Ends) -> dict[Resource, int]:
        """What a channel crosses that has a limit, with its capacity in bit/s."""
        one, other = ends
        if one.host == other.host:
            return {}
        if one.datacenter == other.datacenter:
            rate_bps = self.topology.intra_rate_bps
            return {} if rate_bps is None else {("port", other.host.name, ""): rate_bps}
        conditions = self.topology.conditions(one.datacenter, other.datacenter)
        found: dict[Resource, int] = {}
        if conditions.pair_rate_bps is not None:
            found["node_pair", one.host.name, other.host.name] = conditions.pair_rate_bps
        if conditions.rate_bps is not None:
            found["trunk", one.datacenter, other.datacenter] = max(conditions.rate_bps // self.trunk_share, 1)
        return found

    def _binding(self, crossed: Mapping[Ends, Mapping[Resource, int]]) -> dict[Resource, int]:
        """The resources that can run full: a trunk that carries all its node pairs at once does not count."""
        capacities = {resource: bps for resources in crossed.values() for resource, bps in resources.items()}
        demand: dict[Resource, dict[Resource, int]] = {}
        for resources in crossed.values():
            pair = next((each for each in resources if each[0] == "node_pair"), None)
            trunk = next((each for each in resources if each[0] == "trunk"), None)
            if trunk is not None and pair is not None:
                demand.setdefault(trunk, {})[pair] = resources[pair]
        return {
            resource: bps
            for resource, bps in capacities.items()
            if resource not in demand or sum(demand[resource].values()) > bps
        }
