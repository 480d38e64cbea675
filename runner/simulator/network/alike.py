"""Group node pairs whose rates are equal whatever happens: max-min fairness then has a few groups to consider.

Node pairs are alike if they cross the same trunks, have resources of their own of the same capacities, and arrive at
ports at which equal numbers of node pairs alike arrive.
"""

from __future__ import annotations

from typing import NamedTuple

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.stream import Stream

_NO_LIMIT_BPS = 1 << 62


class Hub:
    """A resource that many node pairs share, such as a trunk. ``configured_bps`` is the most that those sending use."""

    __slots__ = ("capacity_bps", "configured_bps", "groups", "left_bps", "limits", "number", "open_count")

    def __init__(self, number: int, capacity_bps: int) -> None:
        self.number = number
        self.capacity_bps = capacity_bps
        self.configured_bps = 0
        self.limits = False
        self.groups: dict[AlikePairs, None] = {}
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


class Port:
    """The likeness of ports of one capacity, at each of which node pairs of the same ``groups`` arrive."""

    __slots__ = ("capacity_bps", "groups", "left_bps", "open_count")

    def __init__(self, capacity_bps: int) -> None:
        self.capacity_bps = capacity_bps
        self.groups: list[AlikePairs] = []
        self.left_bps = 0
        self.open_count = 0


StreamKey = tuple[int, int, bool, int]
"""The channels of the node pair that send, how many of them are bursts, whether this is one, and ``payload_share``."""


def part_bps(rate_bps: int, key: StreamKey) -> int:
    """Return a channel's part of its node pair's rate: an equal one in whole bit/s, at least 1.

    Bursts are served one after the other: the first one has the parts of all bursts.
    """
    count, bursts, is_burst, _ = key
    each_bps = max(rate_bps // count, 1)
    return max(rate_bps - each_bps * (count - bursts), 1) if is_burst else each_bps


class AlikePairs:
    """Node pairs that are alike. ``sending`` counts those that send; all of them have ``rate_bps``.

    ``at_port`` of them arrive at each port. ``fair_bps`` is what their rate is about to be.
    """

    __slots__ = (
        "at_port",
        "fair_bps",
        "hubs",
        "is_open",
        "own_bps",
        "port",
        "rate_bps",
        "sending",
        "streams",
        "widest_bps",
    )

    def __init__(self, path: Path, hubs: list[Hub], port: Port | None, at_port: int) -> None:
        self.hubs = hubs
        self.own_bps = path.own_bps
        self.widest_bps = path.widest_bps
        self.port = port
        self.at_port = at_port
        self.sending = 0
        self.rate_bps = 0
        self.fair_bps = 0
        self.is_open = False
        self.streams: dict[StreamKey, Stream] = {}

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


class Groups:
    """All groups of a simulation, and their streams."""

    def __init__(self, events: EventQueue, hubs: dict[int, Hub]) -> None:
        self._events = events
        self._hubs = hubs
        self._groups: dict[Path, AlikePairs] = {}
        self._at_ports: dict[tuple[int, tuple[Path, ...]], dict[Path, AlikePairs]] = {}
        self.streams: list[Stream] = []

    def away_from_ports(self, path: Path) -> AlikePairs:
        """Return the group of node pairs that no port limits."""
        group = self._groups.get(path)
        if group is None:
            group = self._groups[path] = self._created(path, None, 0)
        return group

    def at_ports(self, capacity_bps: int, arriving: tuple[Path, ...]) -> dict[Path, AlikePairs]:
        """Return the group of each path that arrives at ports at which ``arriving``, in order, arrive."""
        found = self._at_ports.get((capacity_bps, arriving))
        if found is None:
            port = Port(capacity_bps)
            found = {path: self._created(path, port, arriving.count(path)) for path in dict.fromkeys(arriving)}
            port.groups = list(found.values())
            self._at_ports[capacity_bps, arriving] = found
        return found

    def stream(self, group: AlikePairs, key: StreamKey) -> Stream:
        """Return the stream of a group's channels that have one rate."""
        stream = group.streams.get(key)
        if stream is None:
            stream = group.streams[key] = Stream(self._events, len(self.streams), key[3])
            self.streams.append(stream)
        return stream

    def _created(self, path: Path, port: Port | None, at_port: int) -> AlikePairs:
        return AlikePairs(path, [self._hubs[number] for number in path.hubs], port, at_port)


def share_fairly(groups: list[AlikePairs], hubs: list[Hub], ports: list[Port]) -> None:
    """Set ``fair_bps`` of ``groups`` to their max-min fair rate, as ``fair_rates_bps`` computes it for node pairs.

    ``hubs`` in order of number, and ``ports``, are all that limit them, apart from their own resources. Of resources
    that are saturated at the same rate, their own are filled first, then ports, then hubs.
    """
    _open(groups, hubs, ports)
    own = sorted([group for group in groups if group.own_bps], key=_own_bps, reverse=True)
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


def _open(groups: list[AlikePairs], hubs: list[Hub], ports: list[Port]) -> None:
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


def _own_bps(group: AlikePairs) -> int:
    return group.own_bps


def _fill(group: AlikePairs, share_bps: int) -> None:
    group.is_open = False
    group.fair_bps = max(share_bps, 1)
    for hub in group.hubs:
        hub.left_bps -= share_bps * group.sending
        hub.open_count -= group.sending
    if group.port is not None:
        group.port.left_bps -= share_bps * group.at_port
        group.port.open_count -= group.at_port
