"""Share resources between the node pairs that cross them: each gets its max-min fair share at every instant.

A resource is a node pair, a trunk or a host's port. It is shared between node pairs, as by the testbed's queues. A node
pair's rate is split evenly between its channels that send; bursts that windows have let out at once are served first
come, first served. Whenever node pairs begin or stop sending, the rates of all affected node pairs are recomputed, once
for all changes of one instant. Node pairs that are alike are recomputed together. The capacity of a resource may change
at any time (``SharedCapacity.change``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.alike import AlikePairs, Groups, Hub, Path, Port, StreamKey, part_bps, share_fairly
from wanbed.runner.simulator.network.changing.capacity_course import CapacityCourse
from wanbed.runner.simulator.network.stream import Sender, Stream


class NodePairFlow:
    """All channels from one host to another. ``number`` is unique and breaks ties.

    ``opposite`` is the flow of the other direction, behind whose bytes acknowledgements wait; None where the wait is
    not noticeable.
    """

    __slots__ = (
        "channels",
        "courses",
        "fixed_bps",
        "group",
        "hubs_most_bps",
        "number",
        "opposite",
        "path",
        "port",
        "port_most_bps",
        "resources",
        "sending",
    )

    def __init__(self, number: int, resources: Sequence[int]) -> None:
        self.number = number
        self.resources = tuple(resources)
        self.channels = 0
        self.sending: dict[Sender, None] = {}
        self.opposite: NodePairFlow | None = None
        self.courses: list[CapacityCourse] = []
        """The resources on its path whose capacities change."""
        self.path: Path | None = None
        self.hubs_most_bps: tuple[int, ...] = ()
        self.port: _HostPort | None = None
        self.port_most_bps = 0
        self.group: AlikePairs | None = None
        """The flows like it, while it sends and others may limit it."""
        self.fixed_bps = 0
        """Its rate while it sends and others never limit it."""

    @property
    def rate_bps(self) -> int:
        """The rate of all its channels together, 0 until it has one."""
        return self.fixed_bps if self.group is None else self.group.rate_bps

    def acknowledged_later_ns(self, now_ns: int) -> int | None:
        """Return how long an acknowledgement sent now waits for the bytes queued before it.

        Return None while the opposite direction sends but has no rate yet.
        """
        if self.opposite is None or not self.opposite.sending:
            return 0
        rate_bps = self.opposite.rate_bps
        if not rate_bps:
            return None
        return sum([channel.queued_bits_ns(now_ns) for channel in self.opposite.sending]) // rate_bps


class _HostPort:
    """A port that several node pairs share, and those that send to it now."""

    __slots__ = ("capacity_bps", "configured_bps", "sending")

    def __init__(self, capacity_bps: int) -> None:
        self.capacity_bps = capacity_bps
        self.configured_bps = 0
        self.sending: dict[NodePairFlow, None] = {}


class SharedCapacity:
    """The resources of one simulation, by number, and the node pairs that send over each of them now.

    A resource is limiting only while its senders could together use more than its capacity, where each sender uses at
    most the capacity of the narrowest other resource on its path. Resources that are not limiting are ignored.

    ``own`` has resources that only one flow crosses, ``ports`` some of which no flow crosses two; all others are hubs.
    On a flow's path, the numbers of its own resources are the lowest and that of its port is lower than those of hubs.
    """

    def __init__(
        self,
        events: EventQueue,
        capacities_bps: Mapping[int, int],
        own: Collection[int] = (),
        ports: Collection[int] = (),
    ) -> None:
        self.events = events
        self._capacities_bps = dict(capacities_bps)
        self._own = frozenset(own)
        self._ports = {number: _HostPort(capacities_bps[number]) for number in ports}
        self._hubs = {
            number: Hub(number, capacity_bps)
            for number, capacity_bps in capacities_bps.items()
            if number not in self._own and number not in self._ports
        }
        self._groups = Groups(events, self._hubs)
        self._most_channels = 0
        self._most_flows = 0
        self._first_turn = 0
        self._changed: dict[Stream, None] = {}
        self._touched: dict[NodePairFlow, None] = {}
        self._touched_hubs: dict[Hub, None] = {}
        self._touched_ports: dict[_HostPort, None] = {}

    @property
    def streams(self) -> list[Stream]:
        """All streams, by number."""
        return self._groups.streams

    def expect(self, flow: NodePairFlow) -> None:
        """Prepare for one more channel of ``flow``."""
        flow.channels += 1
        self._most_channels = max(self._most_channels, flow.channels)
        self._most_flows = max(self._most_flows, flow.number + 1)

    def begin(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """Let ``channel`` of ``flow`` send from now on. It gets its rate at the same instant."""
        flow.sending[channel] = None
        self._touch(flow, now_ns)
        for course in flow.courses:
            course.wake(now_ns)

    def change(self, number: int, capacity_bps: int, flows: Iterable[NodePairFlow], now_ns: int) -> None:
        """Let a resource, which all of ``flows`` cross and no other flow, have another capacity from now on."""
        if capacity_bps == self._capacities_bps[number]:
            return
        self._capacities_bps[number] = capacity_bps
        if number in self._hubs:
            self._hubs[number].capacity_bps = capacity_bps
        for flow in flows:
            for channel in flow.sending:
                channel.leave()
            self._release(flow)
            flow.path = None
            if flow.sending:
                self._touch(flow, now_ns)

    def stop(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """Handle that ``channel`` of ``flow`` has stopped sending."""
        del flow.sending[channel]
        if not flow.sending:
            flow.fixed_bps = 0
            self._release(flow)
        self._touch(flow, now_ns)

    def _release(self, flow: NodePairFlow) -> None:
        """Take a flow from those that limit each other."""
        if flow.group is not None:
            flow.group.remove()
            flow.group = None
            self._configure(flow, -1)
            if flow.port is not None:
                del flow.port.sending[flow]

    def _touch(self, flow: NodePairFlow, now_ns: int) -> None:
        if not self._touched:
            self.events.at(now_ns, self._share, None)
        self._touched[flow] = None

    def _configure(self, flow: NodePairFlow, sign: int) -> None:
        """Count what a flow that begins or stops can use of what it shares."""
        assert flow.path is not None
        for number, most_bps in zip(flow.path.hubs, flow.hubs_most_bps, strict=True):
            hub = self._hubs[number]
            hub.configured_bps += sign * most_bps
            self._touched_hubs[hub] = None
        port = flow.port
        if port is not None:
            port.configured_bps += sign * flow.port_most_bps
            self._touched_ports[port] = None

    def _path(self, flow: NodePairFlow) -> Path:
        """Return the resources that a flow crosses apart from its port, once its share of each is known."""
        capacities_bps = self._capacities_bps
        hubs, limits_bps = [], []
        for number in flow.resources:
            if number in self._own:
                if self._most_of(flow, number) > capacities_bps[number]:
                    limits_bps.append(capacities_bps[number])
            elif number in self._ports:
                flow.port = self._ports[number]
                flow.port_most_bps = self._most_of(flow, number)
            else:
                hubs.append(number)
        flow.hubs_most_bps = tuple(self._most_of(flow, number) for number in hubs)
        widest_bps = min(capacities_bps[number] for number in flow.resources)
        return Path(tuple(hubs), min(limits_bps, default=0), widest_bps)

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

    def _share(self, now_ns: int, _: None) -> None:
        touched, self._touched = self._touched, {}
        self._first_turn = self.events.take_turns(2 * self._most_channels * self._most_flows)
        moved = {flow: None for flow in touched if flow.sending and self._is_shared(flow)}
        for port in self._touched_ports:
            moved.update(port.sending)
        if moved or self._touched_hubs:
            for flow in list(moved):
                self._regroup(flow, touched, moved)
            self._set_rates(self._affected(moved), now_ns)
        self._touched_ports.clear()
        self._touched_hubs.clear()
        moved.update({flow: None for flow in touched if flow.fixed_bps})
        for flow in sorted(moved, key=_number) if len(moved) > 1 else moved:
            self._split(flow, now_ns)
        for stream in self._changed:
            stream.arm(now_ns)
        self._changed.clear()

    def _set_rates(self, groups: Iterable[AlikePairs], now_ns: int) -> None:
        """Give ``groups`` their fair rates."""
        for group in groups:
            if group.fair_bps != group.rate_bps:
                group.rate_bps = group.fair_bps
                for key, stream in group.streams.items():
                    if stream.members:
                        stream.set_rate(part_bps(group.rate_bps, key), now_ns, self._first_turn)
                        self._changed[stream] = None

    def _is_shared(self, flow: NodePairFlow) -> bool:
        """Return whether others may limit a flow that sends. If not, it has its rate."""
        path = flow.path
        if path is None:
            path = flow.path = self._path(flow)
        if not path.hubs and flow.port is None:
            flow.fixed_bps = path.own_bps or path.widest_bps
            return False
        if flow.group is None:
            self._configure(flow, 1)
            if flow.port is not None:
                flow.port.sending[flow] = None
        return True

    def _regroup(
        self, flow: NodePairFlow, touched: Mapping[NodePairFlow, None], moved: dict[NodePairFlow, None]
    ) -> None:
        """Put a flow where those alike are. Its channels leave their streams; if they need not, it is not ``moved``."""
        path, port = flow.path, flow.port
        assert path is not None
        if port is None or port.configured_bps <= port.capacity_bps:
            group = self._groups.away_from_ports(path)
        else:
            arriving = tuple(sorted([each.path for each in port.sending if each.path is not None]))
            group = self._groups.at_ports(port.capacity_bps, arriving)[path]
        if group is not flow.group:
            if flow.group is not None:
                flow.group.remove()
            flow.group = group
            group.add()
        elif flow not in touched:
            del moved[flow]
            return
        for channel in flow.sending:
            channel.leave()

    def _affected(self, moved: Iterable[NodePairFlow]) -> list[AlikePairs]:
        """Return the groups whose rates may change, with their fair rates."""
        seeds = {flow.group: None for flow in moved if flow.group is not None}
        for hub in self._touched_hubs:
            limited = hub.limits
            hub.limits = hub.configured_bps > hub.capacity_bps
            if limited or hub.limits:
                seeds.update(hub.groups)
        waiting = list(seeds)
        found: dict[AlikePairs, None] = {}
        hubs: dict[Hub, None] = {}
        ports: dict[Port, None] = {}
        limited_groups = []
        while waiting:
            group = waiting.pop()
            if group in found:
                continue
            found[group] = None
            limits = group.own_bps > 0
            for hub in group.hubs:
                if hub.limits:
                    limits = True
                    if hub not in hubs:
                        hubs[hub] = None
                        waiting.extend(hub.groups)
            port = group.port
            if port is not None:
                limits = True
                if port not in ports:
                    ports[port] = None
                    waiting.extend(port.groups)
            if limits:
                limited_groups.append(group)
            else:
                group.fair_bps = group.widest_bps
        share_fairly(limited_groups, sorted(hubs, key=_hub_number), list(ports))
        return list(found)

    def _split(self, flow: NodePairFlow, now_ns: int) -> None:
        """Give every channel that sends its rate: bursts are served one after the other."""
        position = 2 * self._most_channels * flow.number + 1
        sending = flow.sending
        count = len(sending)
        if count == 1:
            for channel in sending:
                self._give(channel, flow, (1, 0, False, channel.payload_share), position)
        else:
            bursts = [channel for channel in sending if channel.is_burst]
            for channel in sending:
                if not channel.is_burst:
                    self._give(channel, flow, (count, 0, False, channel.payload_share), position)
                    position += 2
            for number, channel in enumerate(bursts):
                if number:
                    channel.send_at(0, now_ns, self._first_turn + position)
                else:
                    self._give(channel, flow, (count, len(bursts), True, channel.payload_share), position)
                position += 2

    def _give(self, channel: Sender, flow: NodePairFlow, key: StreamKey, position: int) -> None:
        """Give a channel its part of the flow's rate."""
        now_ns, group = self.events.now_ns, flow.group
        if group is None:
            channel.send_at(part_bps(flow.fixed_bps, key), now_ns, self._first_turn + position)
            return
        stream = self._groups.stream(group, key)
        if not stream.members:
            stream.set_rate(part_bps(group.rate_bps, key), now_ns, self._first_turn)
        channel.position = position
        channel.join(stream, now_ns, self._first_turn + position)
        self._changed[stream] = None


def _number(flow: NodePairFlow) -> int:
    return flow.number


def _hub_number(hub: Hub) -> int:
    return hub.number
