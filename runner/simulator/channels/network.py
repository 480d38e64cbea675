"""Create the channels between ranks from a topology, with the resources that each channel crosses and shares."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from wanbed.flow.changing_path import (
    CapacityCourse,
    ChangingPath,
    Retransmission,
    constant,
    pair_bps,
    trunk_bps,
)
from wanbed.flow.channel import Channel, PrivateChannel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.packets.tick import met_after
from wanbed.flow.packets.way import Gateways
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.shared_channel import ChangingChannel, SharedChannel
from wanbed.flow.window import LEAST_TIMEOUT_NS, TcpWindow, opened
from wanbed.runner.resolve.connections import held_bytes
from wanbed.runner.resolve.packet_draws import has_narrow_way, is_impaired
from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator.channels.packet_channel import (
    GREETING_BYTES,
    PacketChannel,
    PacketLinks,
    first_rtt_ns,
)
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.transport.rendezvous import RETRY_NS

Ends = tuple[StagePlace, StagePlace]
"""The sending place and the receiving place."""

_Hosts = tuple[str, str]
"""The names of the sending host and the receiving host."""

_Resource = tuple[str, str, str]
"""A kind (``node_pair``, ``trunk`` or ``port``) and the names of its two ends. The second name of a port is empty."""

_RESOURCES = {"node_pair": 0, "trunk": 1, "port": 2}
"""The kinds in the order in which a transfer crosses them. Each limits what reaches the following ones."""

_NOTICED_PART = 8
"""Acknowledgements wait noticeably only behind windows of at least 1/8 of what the line holds in a round trip."""

Variant = TypeVar("Variant", bound=ResolvedVariant)


@dataclass(frozen=True)
class Network(Generic[Variant]):
    """The network of one simulation, which creates the channels.

    Across the WAN the channels of a node pair share its cap, and the node pairs of two datacenters share their trunk.
    Everything that is sent to a host shares the host's port; sending is not limited by a port. Each resource is shared
    max-min between node pairs, and a node pair's rate is split between its channels. Transfers between places on one
    host take no time.

    Only one of ``equal_parts`` equal parts is simulated, with its share of every trunk; places of the other parts are
    represented by those of the first. ``dilation`` is that of an emulation to compare with. An emulation does not
    dilate TCP's timers, so they are divided by it here. ``beside`` are those of other jobs, by the hosts that each has;
    then there is a single part, and ``channels`` makes those of all jobs.

    With ``packets`` all channels between hosts are simulated packet by packet. Otherwise those are over links that lose
    or jitter packets, and those beside flows of TCP on links with so narrow a way that acknowledgements need much of
    it; at a port that they share with other channels, neither slows the other down.
    """

    topology: Topology
    connections: Mapping[tuple[str, str], int]
    variant: Variant
    effects: TcpEffects
    equal_parts: int = 1
    dilation: float = 1.0
    packets: bool = False
    beside: "Mapping[str, Network[Variant]]" = field(default_factory=dict)

    def of(self, ends: Ends) -> "Network[Variant]":
        """Return the network of the job that sends from the first place: this one, or one of ``beside``."""
        return self.beside.get(ends[0].host.name, self)

    def line(self, ends: Ends) -> Line:
        """Return the line between two places, unshared: with the rate of the narrowest resource that it crosses."""
        one, other = ends
        if one.host == other.host:
            return Line(None, 0, self.effects.headers, None, self.topology.mtu_bytes)
        if one.datacenter == other.datacenter:
            return self.intra_line
        here, there = one.datacenter, other.datacenter
        latency_ns, back_ns = (self.topology.conditions(*way).latency_ns for way in ((here, there), (there, here)))
        rate_bps = self.topology.line_rate_bps(here, there)
        return Line(rate_bps, latency_ns, self.effects.headers, back_ns, self.topology.mtu_bytes)

    @property
    def intra_line(self) -> Line:
        """The line between two hosts of one datacenter."""
        topology = self.topology
        rate_bps, latency_ns = topology.intra_rate_bps, topology.intra_latency_ns
        return Line(rate_bps, latency_ns, self.effects.headers, None, topology.mtu_bytes)

    def connections_between(self, ends: Ends) -> int:
        """Return the number of TCP connections between the two hosts."""
        hosts = (ends[0].host.name, ends[1].host.name)
        return self.connections[hosts if hosts in self.connections else hosts[::-1]]

    def window(self, ends: Ends) -> TcpWindow:
        """Return the window of newly opened TCP connections between the two places."""
        return opened(
            self.line(ends),
            self.connections_between(ends),
            self.variant.tcp,
            window=self.effects.window,
            slow_start=self.effects.slow_start,
            least_timeout_ns=round(LEAST_TIMEOUT_NS / self.dilation),
        )

    def channels(
        self, wanted: Iterable[Ends], events: EventQueue, watched: Collection[str] = ()
    ) -> dict[Ends, Channel]:
        """Return a channel for each of ``wanted``. These must be all that share resources with others.

        They start at places of the first equal part. What crosses the WAN keeps its history, and what arrives at the
        ``watched`` hosts of that part.
        """
        every = sorted(wanted, key=lambda pair: (pair[0].pipeline, pair[0].stage, pair[1].pipeline, pair[1].stage))
        followed = [pair for pair in every if self._follows_packets(pair)]
        ends = [pair for pair in every if pair not in set(followed)] if followed else every
        crossed = {pair: self._resources(pair) for pair in ends}
        binding = self._binding(crossed)
        numbers = {resource: number for number, resource in enumerate(sorted(binding))}
        users = Counter(resource for resources in crossed.values() for resource in resources if resource in binding)
        pairs = Counter(
            resource
            for _, resources in {_hosts(pair): resources for pair, resources in crossed.items()}.items()
            for resource in resources
        )
        alone = {resource for resource in binding if resource[0] != "trunk" and pairs[resource] == 1}
        capacity = SharedCapacity(
            events,
            {numbers[resource]: rate_bps for resource, rate_bps in binding.items()},
            own={numbers[resource] for resource in alone},
            ports={numbers[resource] for resource in binding if resource[0] == "port" and resource not in alone},
        )
        opposites = self._opposites(ends)
        paths = {pair: path for pair in ends if (path := self.of(pair)._path(pair)) is not None}
        flows: dict[_Hosts, NodePairFlow] = {}
        channels: dict[Ends, Channel] = {}
        for pair in ends:
            own = [resource for resource in crossed[pair] if resource in binding]
            hosts = _hosts(pair)
            if any(users[resource] > 1 for resource in own) or hosts in opposites or pair in paths:
                if hosts not in flows:
                    flows[hosts] = NodePairFlow(len(flows), sorted(numbers[resource] for resource in own))
                # A large ring inside a datacenter has millions of stretches, of which nothing is reported.
                if pair in paths:
                    of_job = self.of(pair)
                    retransmission = Retransmission(paths[pair], self.dilation) if of_job._has_tcp else None
                    channels[pair] = ChangingChannel(
                        paths[pair], of_job.window(pair), flows[hosts], capacity, retransmission
                    )
                    continue
                keeps = pair[0].datacenter != pair[1].datacenter or self.arrival_host(pair) in watched
                window = self.of(pair).window(pair)
                channels[pair] = SharedChannel(
                    self.of(pair).line(pair), window, flows[hosts], capacity, keeps_history=keeps
                )
            else:
                whole = self.of(pair).line(pair)
                line = replace(whole, rate_bps=min((binding[resource] for resource in own), default=None))
                channels[pair] = PrivateChannel(line, self.of(pair).window(pair), whole)
        for hosts, opposite in opposites.items():
            flows[hosts].opposite = flows[opposite]
        self._follow(paths, capacity, flows, numbers)
        if followed:
            seed = f"{self.variant.seed} {self.variant.repeat}"
            gateways = Gateways(plan_gateways(self.topology, 0, Timers.VIRTUAL), events, seed)
            greetings_ns = self._greetings_ns(followed, gateways)
            begins_ns = max(greetings_ns.values())
            if any(pair[0].host == pair[1].host for pair in every):
                # The first of two ranks on a host is started first, and calls before the other listens.
                begins_ns = max(begins_ns, RETRY_NS)
            links = PacketLinks(gateways, events, seed, met_after(begins_ns))
            made: dict[Ends, PacketChannel] = {}
            before = self._called_before(followed)
            for pair in followed:
                of_job = self.of(pair)
                connections, tcp = of_job.connections_between(pair), of_job.variant.tcp
                calls = _calls(pair)
                channels[pair] = made[pair] = links.channel(
                    of_job.line(pair),
                    _hosts(pair),
                    connections,
                    tcp,
                    unsent_bytes=held_bytes(self.topology, tcp, pair, connections)[0],
                    calls=calls,
                    called_before=before[pair],
                    # The greeting of an end that was called is acknowledged after the other end has begun, or before.
                    greeted_ns=0 if calls else greetings_ns[pair] + of_job.line(pair).rtt_ns // 2 - begins_ns,
                )
                if (other_way := made.get(pair[::-1])) is not None:
                    other_way.join(made[pair])
        return channels

    def _greetings_ns(self, followed: Sequence[Ends], gateways: Gateways) -> dict[Ends, int]:
        """Return how long it takes until the ranks of each of these pairs have greeted each other.

        All call at once. Connections take a round trip, and greetings another. Those of all connections between two
        hosts follow each other on the line.
        """
        connections: Counter[_Hosts] = Counter()
        for pair in followed:
            connections[_hosts(pair)] += self.of(pair).connections_between(pair)
        greetings_ns = {}
        for pair in followed:
            source, destination = hosts = _hosts(pair)
            forth, back = gateways.way(source, destination), gateways.way(destination, source)
            waits_ns = connections[hosts] * forth.carrying_ns(GREETING_BYTES)
            greetings_ns[pair] = 2 * first_rtt_ns(self.of(pair).line(pair), forth, back) + waits_ns
        return greetings_ns

    def _called_before(self, followed: Sequence[Ends]) -> dict[Ends, int]:
        """Return for each of these pairs how many connections are made over the same way before its own."""
        made: Counter[_Hosts] = Counter()
        before: dict[Ends, int] = {}
        for pair in followed:
            call = pair if _calls(pair) else pair[::-1]
            if call not in before:
                before[call] = before[call[::-1]] = made[_hosts(call)]
                made[_hosts(call)] += self.of(pair).connections_between(pair)
        return before

    def _follows_packets(self, ends: Ends) -> bool:
        """Return whether packets between the two places are simulated one by one."""
        effects, (here, there) = self.of(ends).effects, _datacenters(ends)
        if self.packets and ends[0].host != ends[1].host:
            return True
        if effects.impairments and is_impaired(self.topology, here, there):
            return True
        beside = [flow for flow in self.variant.background if {each.datacenter for each in flow.ends} == {here, there}]
        are_tcp = bool(beside) and all(flow.is_tcp for flow in beside)
        return are_tcp and effects.window and effects.headers and has_narrow_way(self.topology, here, there)

    def _path(self, ends: Ends) -> ChangingPath | None:
        """Return the path between two places if its link changes in one of the directions, else None."""
        topology, (here, there) = self.topology, _datacenters(ends)
        if not topology.changes or here == there:
            return None
        forth, back = topology.course(here, there), topology.course(there, here)
        if forth is None and back is None:
            return None
        return ChangingPath(
            forth or constant(topology.conditions(here, there)),
            back or constant(topology.conditions(there, here)),
            topology.intra_rate_bps,
            self.effects.headers,
            topology.mtu_bytes,
        )

    @property
    def _has_tcp(self) -> bool:
        return self.effects.window or self.effects.slow_start

    def _follow(
        self,
        paths: Mapping[Ends, ChangingPath],
        capacity: SharedCapacity,
        flows: Mapping[_Hosts, NodePairFlow],
        numbers: Mapping[_Resource, int],
    ) -> None:
        """Let the capacities of node pairs and trunks change as the links do."""
        crossing: dict[_Resource, dict[NodePairFlow, None]] = {}
        own = {resource: path for pair, path in paths.items() for resource in self._resources(pair)}
        for pair in paths:
            for resource in self._resources(pair):
                crossing.setdefault(resource, {})[flows[_hosts(pair)]] = None
        for resource, crossed in crossing.items():
            number, path = numbers.get(resource), own[resource]
            if number is None or resource[0] == "port" or len(path.there.changes) == 1:
                continue
            bps_of = pair_bps if resource[0] == "node_pair" else self._trunk_part_bps
            change, is_sending = partial(_change, capacity, number, list(crossed)), partial(_is_sending, list(crossed))
            course = CapacityCourse(capacity.events, path.there, bps_of, change, is_sending)
            for flow in crossed:
                flow.courses.append(course)

    def _trunk_part_bps(self, conditions: LinkConditions) -> int:
        """Return the capacity of a trunk for each equal part."""
        return max(trunk_bps(conditions) // self.equal_parts, 1)

    def _opposites(self, wanted: Iterable[Ends]) -> dict[_Hosts, _Hosts]:
        """Return the node pairs whose acknowledgements may wait noticeably, each with the opposite pair.

        Acknowledgements wait behind the opposite pair's bytes. The wait is noticeable where both directions are in use
        and a window lets out enough bytes at once.
        """
        let_out: Counter[_Hosts] = Counter()
        opposites: dict[_Hosts, _Hosts] = {}
        for ends in wanted:
            own = self.of(ends)
            line = own.line(ends)
            held_bytes = line.payload_per_rtt()
            if held_bytes and line.rtt_ns and own.effects.window:
                hosts = _hosts(ends)
                window_bytes = own.connections_between(ends) * own.variant.tcp.window_bytes
                let_out[hosts] += _NOTICED_PART * window_bytes // held_bytes
                opposites[hosts] = hosts if self._is_its_mirror(ends) else hosts[::-1]
        return {
            hosts: opposite
            for hosts, opposite in opposites.items()
            if opposite in opposites and (let_out[hosts] or let_out[opposite])
        }

    def arrival_host(self, ends: Ends) -> str:
        """Return the host of the first equal part at which a channel arrives, or the one that represents it."""
        return self._in_first_part(ends[1]).host.name

    def _is_its_mirror(self, ends: Ends) -> bool:
        """Return whether ``ends`` join two equal parts that send to each other alike: one direction represents both."""
        one, other = ends
        mirror = self._in_first_part(other)
        return self.equal_parts == 2 and mirror.host != other.host and mirror.host == one.host

    def _resources(self, ends: Ends) -> dict[_Resource, int]:
        """Return the limited resources that a channel crosses, with their capacities in bit/s."""
        one, other = ends
        if one.host == other.host:
            return {}
        found: dict[_Resource, int] = {}
        if self.topology.intra_rate_bps is not None:
            found["port", self.arrival_host(ends), ""] = self.topology.intra_rate_bps
        if one.datacenter == other.datacenter:
            return found
        conditions = self.topology.conditions(one.datacenter, other.datacenter)
        changes = self._path(ends) is not None
        if conditions.pair_rate_bps is not None or changes:
            found["node_pair", one.host.name, other.host.name] = pair_bps(conditions)
        if conditions.rate_bps is not None or (changes and self._ranges(ends).get(("trunk", *_datacenters(ends)))):
            found["trunk", one.datacenter, other.datacenter] = self._trunk_part_bps(conditions)
        return found

    def _ranges(self, ends: Ends) -> dict[_Resource, tuple[int, int]]:
        """Return the least and the largest capacity of each resource that a channel crosses and that changes."""
        path = self._path(ends)
        if path is None:
            return {}
        found: dict[_Resource, tuple[int, int]] = {
            ("node_pair", ends[0].host.name, ends[1].host.name): path.pair_range_bps
        }
        if (trunk := path.trunk_range_bps) is not None:
            least_bps, most_bps = (max(bps // self.equal_parts, 1) for bps in trunk)
            found["trunk", *_datacenters(ends)] = least_bps, most_bps
        return found

    def _in_first_part(self, place: StagePlace) -> StagePlace:
        """Return the place of the first equal part that corresponds to ``place``."""
        if self.equal_parts == 1:
            return place
        pipelines = self.variant.placement.pipelines
        return pipelines[place.pipeline % (len(pipelines) // self.equal_parts)][place.stage]

    def _binding(self, crossed: Mapping[Ends, Mapping[_Resource, int]]) -> dict[_Resource, int]:
        """Return the resources that can be a bottleneck, without those that can carry all their node pairs at once."""
        capacities = {resource: bps for resources in crossed.values() for resource, bps in resources.items()}
        ranges = {resource: each for ends in crossed for resource, each in self._ranges(ends).items()}
        most_bps: dict[_Resource, dict[tuple[str, str], int]] = {}
        for (one, other), resources in crossed.items():
            hosts = one.host.name, other.host.name
            for resource in resources:
                narrower = [
                    ranges[each][1] if each in ranges else bps
                    for each, bps in resources.items()
                    if _RESOURCES[each[0]] < _RESOURCES[resource[0]]
                ]
                most_bps.setdefault(resource, {})[hosts] = min(narrower, default=capacities[resource] + 1)
        return {
            resource: bps
            for resource, bps in capacities.items()
            if resource[0] == "node_pair"
            or sum(most_bps[resource].values()) > (ranges[resource][0] if resource in ranges else bps)
        }


def _datacenters(ends: Ends) -> tuple[str, str]:
    return ends[0].datacenter, ends[1].datacenter


def _calls(ends: Ends) -> bool:
    """Tell whether the sending end makes the connections: a rank calls those of higher numbers."""
    return (ends[0].pipeline, ends[0].stage) < (ends[1].pipeline, ends[1].stage)


def _hosts(ends: Ends) -> _Hosts:
    return ends[0].host.name, ends[1].host.name


def _change(capacity: SharedCapacity, number: int, flows: Sequence[NodePairFlow], bps: int, now_ns: int) -> None:
    capacity.change(number, bps, flows, now_ns)


def _is_sending(flows: Sequence[NodePairFlow]) -> bool:
    return any(flow.sending for flow in flows)
