"""Share resources between the node pairs that cross them: each gets its max-min fair share at every instant.

A resource is a node pair, a trunk or a host's port. It is shared between node pairs, as by the testbed's queues. A node
pair's rate is split evenly between its channels that send; bursts that windows have let out at once are served first
come, first served. Whenever node pairs begin or stop sending, the rates of all affected node pairs are recomputed, once
for all changes of one instant. The capacity of a resource may change at any time (``SharedCapacity.change``).

Node pairs are alike if they cross the same trunks, have resources of their own of the same capacities, and arrive at
ports at which equal numbers of node pairs alike arrive. Their rates are equal whatever happens. So they are recomputed
together, and max-min fairness has a few groups to consider.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from wanbed.flow.changing_path import CapacityCourse
from wanbed.flow.event_queue import Event, EventQueue
from wanbed.flow.stream import Sender, Stream

_NO_LIMIT_BPS = 1 << 62


class _Hub:
    """A resource that many node pairs share, such as a trunk. ``configured_bps`` is the most that those sending use.

    It ``limits`` them where they can use more than it has. ``groups`` are those that it limits. It ``is_touched`` while
    those that send have changed and nobody has looked whether it limits them.
    """

    __slots__ = (
        "capacity_bps",
        "configured_bps",
        "found_in",
        "groups",
        "is_touched",
        "left_bps",
        "limits",
        "number",
        "open_count",
        "sending",
    )

    def __init__(self, number: int, capacity_bps: int) -> None:
        self.number = number
        self.capacity_bps = capacity_bps
        self.found_in = 0
        self.configured_bps = 0
        self.limits = False
        self.is_touched = False
        self.sending: dict[NodePairFlow, None] = {}
        self.groups: dict[_AlikePairs, None] = {}
        self.left_bps = 0
        self.open_count = 0


class Path(NamedTuple):
    """The path of node pairs, apart from ports that they share.

    ``own_bps`` is the capacity of the narrowest resource of their own that limits them, 0 for none. ``widest_bps`` is
    their rate where nothing limits them.
    """

    hubs: tuple[int, ...]
    own_bps: int
    widest_bps: int


class _Port:
    """The likeness of ports of one capacity, at each of which node pairs of the same ``groups`` arrive."""

    __slots__ = ("capacity_bps", "found_in", "groups", "left_bps", "open_count")

    def __init__(self, capacity_bps: int) -> None:
        self.capacity_bps = capacity_bps
        self.found_in = 0
        self.groups: list[_AlikePairs] = []
        self.left_bps = 0
        self.open_count = 0


_StreamKey = tuple[int, int, bool, int]
"""The channels of the node pair that send, how many of them are bursts, whether this is one, and ``payload_share``."""


def _part_bps(rate_bps: int, key: _StreamKey) -> int:
    """Return a channel's part of its node pair's rate: an equal one in whole bit/s, at least 1.

    Bursts are served one after the other: the first one has the parts of all bursts.
    """
    count, bursts, is_burst, _ = key
    each_bps = max(rate_bps // count, 1)
    return max(rate_bps - each_bps * (count - bursts), 1) if is_burst else each_bps


class _AlikePairs:
    """Node pairs that are alike. ``sending`` counts those that send; all of them have ``rate_bps``.

    ``at_port`` of them arrive at each port. ``fair_bps`` is what their rate is about to be.
    """

    __slots__ = (
        "at_port",
        "fair_bps",
        "found_in",
        "hubs",
        "is_open",
        "own_bps",
        "port",
        "rate_bps",
        "sending",
        "streams",
    )

    def __init__(self, path: Path, hubs: list[_Hub], port: _Port | None, at_port: int) -> None:
        self.hubs = hubs
        self.own_bps = path.own_bps
        self.port = port
        self.at_port = at_port
        self.sending = 0
        self.rate_bps = 0
        self.fair_bps = 0
        self.found_in = 0
        self.is_open = False
        self.streams: dict[_StreamKey, Stream] = {}

    def add(self) -> None:
        """Handle that one more node pair sends."""
        if not self.sending:
            for hub in self.hubs:
                hub.groups[self] = None
        self.sending += 1

    def remove(self) -> None:
        """Handle that one node pair less sends."""
        self.sending -= 1
        if not self.sending:
            for hub in self.hubs:
                del hub.groups[self]


class _Groups:
    """All groups of a simulation, and their streams."""

    def __init__(self, events: EventQueue, hubs: dict[int, _Hub]) -> None:
        self._events = events
        self._hubs = hubs
        self._groups: dict[Path, _AlikePairs] = {}
        self._at_ports: dict[tuple[int, tuple[Path, ...]], dict[Path, _AlikePairs]] = {}
        self.streams: list[Stream] = []

    def away_from_ports(self, path: Path) -> _AlikePairs:
        """Return the group of node pairs that no port limits."""
        group = self._groups.get(path)
        if group is None:
            group = self._groups[path] = self._created(path, None, 0)
        return group

    def at_ports(self, capacity_bps: int, arriving: tuple[Path, ...]) -> dict[Path, _AlikePairs]:
        """Return the group of each path that arrives at ports at which ``arriving``, in order, arrive."""
        found = self._at_ports.get((capacity_bps, arriving))
        if found is None:
            port = _Port(capacity_bps)
            found = {path: self._created(path, port, arriving.count(path)) for path in dict.fromkeys(arriving)}
            port.groups = list(found.values())
            self._at_ports[capacity_bps, arriving] = found
        return found

    def stream(self, group: _AlikePairs, key: _StreamKey) -> Stream:
        """Return the stream of a group's channels that have one rate."""
        stream = group.streams.get(key)
        if stream is None:
            stream = group.streams[key] = Stream(self._events, len(self.streams), key[3])
            self.streams.append(stream)
        return stream

    def _created(self, path: Path, port: _Port | None, at_port: int) -> _AlikePairs:
        return _AlikePairs(path, [self._hubs[number] for number in path.hubs], port, at_port)


def _share_fairly(groups: list[_AlikePairs], hubs: list[_Hub], ports: list[_Port]) -> None:
    """Set ``fair_bps`` of ``groups`` to their max-min fair rate, as ``fair_rates_bps`` computes it for node pairs.

    ``hubs`` in order of number, and ``ports``, are all that limit them, apart from their own resources. Of resources
    that are saturated at the same rate, their own are filled first, then ports, then hubs.
    """
    _open(groups, hubs, ports)
    own = [group for group in groups if group.own_bps]
    if len(own) > 1:
        own.sort(key=_own_bps, reverse=True)
    waiting = len(groups)
    while waiting:
        while own and not own[-1].is_open:
            own.pop()
        share_bps = own[-1].own_bps if own else _NO_LIMIT_BPS
        full = own[-1:]
        for port in ports:
            if port.open_count and port.left_bps // port.open_count < share_bps:
                share_bps, full = port.left_bps // port.open_count, port.groups
        for hub in hubs:
            if hub.open_count and hub.left_bps // hub.open_count < share_bps:
                share_bps, full = hub.left_bps // hub.open_count, list(hub.groups)
        for group in full:
            if group.is_open:
                _fill(group, share_bps)
                waiting -= 1


def _open(groups: list[_AlikePairs], hubs: list[_Hub], ports: list[_Port]) -> None:
    for hub in hubs:
        hub.left_bps, hub.open_count = hub.capacity_bps, 0
    for port in ports:
        port.left_bps, port.open_count = port.capacity_bps, 0
    for group in groups:
        group.is_open = True
        for hub in group.hubs:
            hub.open_count += group.sending
        if group.port is not None:
            group.port.open_count += group.at_port


def _own_bps(group: _AlikePairs) -> int:
    return group.own_bps


def _fill(group: _AlikePairs, share_bps: int) -> None:
    group.is_open = False
    group.fair_bps = max(share_bps, 1)
    for hub in group.hubs:
        hub.left_bps -= share_bps * group.sending
        hub.open_count -= group.sending
    if group.port is not None:
        group.port.left_bps -= share_bps * group.at_port
        group.port.open_count -= group.at_port


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
        "hubs",
        "hubs_most_bps",
        "is_counted",
        "is_moved",
        "is_renewed",
        "is_touched",
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
        self.sending: list[Sender] = []
        self.opposite: NodePairFlow | None = None
        self.courses: list[CapacityCourse] = []
        """The resources on its path whose capacities change."""
        self.path: Path | None = None
        self.hubs: list[_Hub] = []
        self.hubs_most_bps: list[int] = []
        self.is_counted = False
        """True while the resources that it shares count it as one that sends, from its first instant to its last."""
        self.is_touched = False
        """True if it has begun or stopped at this instant, so that its rate is to be looked at."""
        self.is_moved = False
        """True while its rate is being looked at."""
        self.is_renewed = False
        """True if it is to get the rate that it had."""
        self.port: _HostPort | None = None
        self.port_most_bps = 0
        self.group: _AlikePairs | None = None
        """The flows like it, while it sends and others limit it."""
        self.fixed_bps = 0
        """Its rate while it sends and no others limit it."""

    @property
    def rate_bps(self) -> int:
        """The rate of all its channels together, 0 until it has one."""
        return self.fixed_bps if self.group is None else self.group.rate_bps

    def acknowledged_later_ns(self, now_ns: int) -> int:
        """Return how long an acknowledgement sent now waits for the bytes queued before it.

        Return -1 while the opposite direction sends but has no rate yet.
        """
        opposite = self.opposite
        if opposite is None or not opposite.sending:
            return 0
        rate_bps = opposite.rate_bps
        if not rate_bps:
            return -1
        queued_bits_ns = 0
        for channel in opposite.sending:
            queued_bits_ns += channel.queued_bits_ns(now_ns)
        return queued_bits_ns // rate_bps


class _HostPort:
    """A port that several node pairs share, and those that send to it now. ``is_touched`` is that of ``_Hub``.

    ``alike`` has the group of each path of those that send to it, None until somebody asks.
    """

    __slots__ = ("alike", "capacity_bps", "configured_bps", "is_touched", "limits", "sending")

    def __init__(self, capacity_bps: int) -> None:
        self.capacity_bps = capacity_bps
        self.configured_bps = 0
        self.limits = False
        self.is_touched = False
        self.sending: dict[NodePairFlow, None] = {}
        self.alike: dict[Path, _AlikePairs] | None = None


class _Sharing(Event):
    """The sharing of resources between those that send, once all changes of an instant are known."""

    __slots__ = ("capacity",)

    def __init__(self, capacity: SharedCapacity) -> None:
        self.turn = 0
        self.following = None
        self.capacity = capacity

    def happen(self, now_ns: int) -> None:
        """Give all that are affected their rates."""
        self.capacity.share(now_ns)


class SharedCapacity:
    """The resources of one simulation, by number, and the node pairs that send over each of them now.

    A resource is limiting only while its senders could together use more than its capacity, where each sender uses at
    most the capacity of the narrowest other resource on its path. Resources that are not limiting are ignored. What all
    flows together cannot fill never is, unless a capacity changes.

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
            number: _Hub(number, capacity_bps)
            for number, capacity_bps in capacities_bps.items()
            if number not in self._own and number not in self._ports
        }
        self._groups = _Groups(events, self._hubs)
        self._flows: dict[NodePairFlow, None] = {}
        self._most_bps: dict[int, int] = {}
        """The most that all flows together can use of each hub and port; empty until it is needed."""
        self._changes = False
        self._most_channels = 0
        self._most_flows = 0
        self._first_turn = 0
        self._changed: dict[Stream, None] = {}
        self._sharing = _Sharing(self)
        self._touched: list[NodePairFlow] = []
        self._searches = 0
        self._touched_hubs: list[_Hub] = []
        self._touched_ports: list[_HostPort] = []

    @property
    def streams(self) -> list[Stream]:
        """All streams, by number."""
        return self._groups.streams

    def expect(self, flow: NodePairFlow) -> None:
        """Prepare for one more channel of ``flow``."""
        flow.channels += 1
        if flow not in self._flows:
            self._flows[flow] = None
            self._look_again(self.events.now_ns)
        self._most_channels = max(self._most_channels, flow.channels)
        self._most_flows = max(self._most_flows, flow.number + 1)

    def begin(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """Let ``channel`` of ``flow`` send from now on. It gets its rate at the same instant."""
        flow.sending.append(channel)
        flow.is_renewed = False
        self._touch(flow, now_ns)
        for course in flow.courses:
            course.wake(now_ns)

    def begin_again(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """Let ``channel`` of ``flow``, whose stretch has ended now, begin another one at the same instant.

        It is as if it had stopped. A flow that has no other channel, and that nobody limits, stays one of those that
        send: only its rate is to be given again.
        """
        if flow.group is None and len(flow.sending) == 1:
            flow.fixed_bps = 0
            flow.is_renewed = flow.is_counted
            self._touch(flow, now_ns)
            for course in flow.courses:
                course.wake(now_ns)
        else:
            self.stop(channel, flow, now_ns)
            self.begin(channel, flow, now_ns)

    def change(self, number: int, capacity_bps: int, flows: Iterable[NodePairFlow], now_ns: int) -> None:
        """Let a resource, which all of ``flows`` cross and no other flow, have another capacity from now on."""
        if capacity_bps == self._capacities_bps[number]:
            return
        if not self._changes:
            self._changes = True
            self._look_again(now_ns)
        self._capacities_bps[number] = capacity_bps
        if number in self._hubs:
            self._hubs[number].capacity_bps = capacity_bps
        for flow in flows:
            self._forget_path(flow, now_ns)

    def _look_again(self, now_ns: int) -> None:
        """Find out anew which resources may limit the flows."""
        if self._most_bps:
            self._most_bps = {}
            for flow in self._flows:
                self._forget_path(flow, now_ns)

    def _forget_path(self, flow: NodePairFlow, now_ns: int) -> None:
        for channel in flow.sending:
            channel.leave()
        self._ungroup(flow)
        if flow.is_counted:
            self._count(flow, -1)
        flow.is_renewed = False
        flow.path = None
        if flow.sending:
            self._touch(flow, now_ns)

    def stop(self, channel: Sender, flow: NodePairFlow, now_ns: int) -> None:
        """Handle that ``channel`` of ``flow`` has stopped sending."""
        flow.sending.remove(channel)
        if not flow.sending:
            self._ungroup(flow)
        self._touch(flow, now_ns)

    def _ungroup(self, flow: NodePairFlow) -> None:
        """Let a flow have no rate. What it shares counts it as one that sends until the end of this instant."""
        flow.fixed_bps = 0
        if flow.group is not None:
            flow.group.remove()
            flow.group = None

    def _touch(self, flow: NodePairFlow, now_ns: int) -> None:
        if flow.is_touched:
            return
        if not self._touched:
            self.events.add(now_ns, self._sharing)
        flow.is_touched = True
        self._touched.append(flow)

    def _count(self, flow: NodePairFlow, sign: int) -> None:
        """Count what a flow that begins or stops can use of what it shares."""
        begins = sign > 0
        flow.is_counted = begins
        for place, hub in enumerate(flow.hubs):
            hub.configured_bps += sign * flow.hubs_most_bps[place]
            if not hub.is_touched:
                hub.is_touched = True
                self._touched_hubs.append(hub)
            if begins:
                hub.sending[flow] = None
            else:
                del hub.sending[flow]
        port = flow.port
        if port is not None:
            port.configured_bps += sign * flow.port_most_bps
            port.alike = None
            if not port.is_touched:
                port.is_touched = True
                self._touched_ports.append(port)
            if begins:
                port.sending[flow] = None
            else:
                del port.sending[flow]

    def _path(self, flow: NodePairFlow) -> Path:
        """Return the resources that a flow crosses apart from its port, once its share of each is known."""
        capacities_bps = self._capacities_bps
        hubs, limits_bps = [], []
        flow.port = None
        for number in flow.resources:
            if number in self._own:
                if self._most_of(flow, number) > capacities_bps[number]:
                    limits_bps.append(capacities_bps[number])
            elif not self._may_limit(number):
                continue
            elif number in self._ports:
                flow.port = self._ports[number]
                flow.port_most_bps = self._most_of(flow, number)
            else:
                hubs.append(number)
        flow.hubs = [self._hubs[number] for number in hubs]
        flow.hubs_most_bps = [self._most_of(flow, number) for number in hubs]
        widest_bps = min(capacities_bps[number] for number in flow.resources)
        return Path(tuple(hubs), min(limits_bps, default=0), widest_bps)

    def _may_limit(self, resource: int) -> bool:
        """Return whether a hub or port ever limits the flows that cross it."""
        if not self._most_bps:
            self._changes = self._changes or any(flow.courses for flow in self._flows)
            for flow in self._flows:
                for number in flow.resources:
                    if number not in self._own:
                        before_bps = self._most_bps.get(number, 0)
                        self._most_bps[number] = before_bps + self._most_of(flow, number)
        return self._changes or self._most_bps[resource] > self._capacities_bps[resource]

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

    def share(self, now_ns: int) -> None:
        """Give all whose rates may have changed since the last time their rates."""
        self._first_turn = self.events.take_turns(2 * self._most_channels * self._most_flows)
        moved = self._sending_of_touched()
        begun = len(moved)
        seeds: dict[_AlikePairs, None] = {}
        unchanged = not self._touched_hubs and not self._touched_ports
        if not unchanged:
            self._find_limits(moved, seeds)
        splits: list[NodePairFlow] = []
        for flow in moved:
            flow.is_moved = False
            path = flow.path
            if unchanged and flow.is_renewed and path is not None:
                flow.is_renewed = False
                flow.fixed_bps = path.own_bps or path.widest_bps
                splits.append(flow)
                continue
            if self._regroup(flow, has_begun=begun > 0):
                splits.append(flow)
            flow.is_renewed = False
            begun -= 1
            group = flow.group
            if group is not None:
                seeds[group] = None
        if seeds:
            self._set_rates(self._affected([group for group in seeds if group.sending]), now_ns)
        _sort(splits)
        for flow in splits:
            self._split(flow, now_ns)
        if self._changed:
            for stream in self._changed:
                stream.arm(now_ns)
            self._changed.clear()

    def _sending_of_touched(self) -> list[NodePairFlow]:
        """Return those of the flows that have begun or stopped that send, and count them. None is touched any more."""
        touched, self._touched = self._touched, []
        moved: list[NodePairFlow] = []
        for flow in touched:
            flow.is_touched = False
            if flow.sending:
                flow.is_moved = True
                moved.append(flow)
                if flow.path is None:
                    flow.path = self._path(flow)
                if not flow.is_counted:
                    self._count(flow, 1)
            elif flow.is_counted:
                self._count(flow, -1)
        return moved

    def _find_limits(self, moved: list[NodePairFlow], seeds: dict[_AlikePairs, None]) -> None:
        """Find out which of the hubs and ports whose flows have changed limit them.

        Add flows that may pass from one group to another to ``moved``, and groups whose rates may change to ``seeds``.
        """
        for hub in self._touched_hubs:
            hub.is_touched = False
            limited, hub.limits = hub.limits, hub.configured_bps > hub.capacity_bps
            if limited or hub.limits:
                seeds.update(hub.groups)
            if limited != hub.limits:
                _move(hub.sending, moved)
        for port in self._touched_ports:
            port.is_touched = False
            limited, port.limits = port.limits, port.configured_bps > port.capacity_bps
            if limited or port.limits:
                _move(port.sending, moved)
        self._touched_hubs.clear()
        self._touched_ports.clear()

    def _set_rates(self, groups: Iterable[_AlikePairs], now_ns: int) -> None:
        """Give ``groups`` their fair rates."""
        for group in groups:
            if group.fair_bps != group.rate_bps:
                group.rate_bps = group.fair_bps
                for key, stream in group.streams.items():
                    if stream.members:
                        stream.set_rate(_part_bps(group.rate_bps, key), now_ns, self._first_turn)
                        self._changed[stream] = None

    def _regroup(self, flow: NodePairFlow, *, has_begun: bool) -> bool:
        """Put a flow where those alike are. Return whether its channels have left their streams; they may not need to.

        They do if the flow ``has_begun`` to send over one more channel, or stopped.
        """
        group = self._limited_with(flow)
        if group is not flow.group:
            if flow.group is not None:
                flow.group.remove()
            flow.group = group
            if group is not None:
                group.add()
        elif not has_begun:
            return False
        if group is None:
            path = flow.path
            assert path is not None
            flow.fixed_bps = path.own_bps or path.widest_bps
        else:
            flow.fixed_bps = 0
        for channel in flow.sending:
            if channel.stream is not None:
                channel.leave()
        return True

    def _limited_with(self, flow: NodePairFlow) -> _AlikePairs | None:
        """Return the flows like one that sends, None if no others limit it."""
        path, port = flow.path, flow.port
        assert path is not None
        is_limited = False
        for hub in flow.hubs:
            if hub.limits:
                is_limited = True
                break
        # Who alone sends to a port has the rate of the narrowest resource on its path, which may be the port.
        if port is not None and port.limits and (is_limited or len(port.sending) > 1):
            alike = port.alike
            if alike is None:
                arriving = tuple(sorted([each.path for each in port.sending if each.path is not None]))
                alike = port.alike = self._groups.at_ports(port.capacity_bps, arriving)
            return alike[path]
        return self._groups.away_from_ports(path) if is_limited else None

    def _affected(self, seeds: Iterable[_AlikePairs]) -> list[_AlikePairs]:
        """Return the groups whose rates may change with those of ``seeds``, with their fair rates."""
        waiting = list(seeds)
        found: list[_AlikePairs] = []
        hubs: list[_Hub] = []
        ports: list[_Port] = []
        self._searches += 1
        search = self._searches
        while waiting:
            group = waiting.pop()
            if group.found_in == search:
                continue
            group.found_in = search
            found.append(group)
            for hub in group.hubs:
                if hub.limits and hub.found_in != search:
                    hub.found_in = search
                    hubs.append(hub)
                    waiting.extend(hub.groups)
            port = group.port
            if port is not None and port.found_in != search:
                port.found_in = search
                ports.append(port)
                waiting.extend(port.groups)
        if len(hubs) > 1:
            hubs.sort(key=_hub_number)
        _share_fairly(found, hubs, ports)
        return found

    def _split(self, flow: NodePairFlow, now_ns: int) -> None:
        """Give every channel that sends its rate: bursts are served one after the other."""
        position = 2 * self._most_channels * flow.number + 1
        sending = flow.sending
        count = len(sending)
        if count == 1:
            only = sending[0]
            if flow.group is None:
                only.send_at(max(flow.fixed_bps, 1), now_ns, self._first_turn + position)
            else:
                self._give(only, flow, (1, 0, False, only.payload_share), now_ns, position)
        else:
            bursts = [channel for channel in sending if channel.is_burst]
            for channel in sending:
                if not channel.is_burst:
                    self._give(channel, flow, (count, 0, False, channel.payload_share), now_ns, position)
                    position += 2
            for number, channel in enumerate(bursts):
                if number:
                    channel.send_at(0, now_ns, self._first_turn + position)
                else:
                    self._give(channel, flow, (count, len(bursts), True, channel.payload_share), now_ns, position)
                position += 2

    def _give(self, channel: Sender, flow: NodePairFlow, key: _StreamKey, now_ns: int, position: int) -> None:
        """Give a channel its part of the flow's rate."""
        group = flow.group
        if group is None:
            channel.send_at(_part_bps(flow.fixed_bps, key), now_ns, self._first_turn + position)
            return
        stream = self._groups.stream(group, key)
        if not stream.members:
            stream.set_rate(_part_bps(group.rate_bps, key), now_ns, self._first_turn)
        channel.position = position
        channel.join(stream, now_ns, self._first_turn + position)
        self._changed[stream] = None


def _move(flows: Iterable[NodePairFlow], moved: list[NodePairFlow]) -> None:
    """Add those of ``flows`` to ``moved`` that are not in it."""
    for flow in flows:
        if not flow.is_moved:
            flow.is_moved = True
            moved.append(flow)


def _sort(flows: list[NodePairFlow]) -> None:
    """Sort flows by number, in which order they mostly are already."""
    before = -1
    for flow in flows:
        if flow.number < before:
            flows.sort(key=_number)
            return
        before = flow.number


def _number(flow: NodePairFlow) -> int:
    return flow.number


def _hub_number(hub: _Hub) -> int:
    return hub.number
