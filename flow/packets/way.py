"""Carry packets from host to host over the gateways that the kernel would be given.

A ``Leaf`` is netem, a ``SharedPort`` the token bucket (HTB) above the leaves of a port whose rate they share. Hosts'
own interfaces limit nothing.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from wanbed.flow.event_queue import EventQueue
from wanbed.testbed.network.gateway_plan import (
    Gateway,
    GatewayPlan,
    HostPort,
    NetemPlan,
    SharedRate,
    pair_class,
    source_class,
)

_NS_PER_S: Final = 10**9


class _Carried(NamedTuple):
    """A packet under way: its bytes on the wire, and what is called with the time and ``what`` when it arrives."""

    wire_bytes: int
    arrives: Callable[[int, Any], None]
    what: Any


_Passes = Callable[[int, _Carried], None]


class Leaf:
    """A netem leaf: it loses packets, delays each, by no less than the one before, and serialises them at its rate.

    Losses and deviations of the delay are drawn from ``seed``.
    """

    __slots__ = ("_bytes_per_s", "_delay_ns", "_draw", "_due_ns", "_free_ns", "_jitter_ns", "_loss")

    def __init__(self, plan: NetemPlan, seed: str = "") -> None:
        self._delay_ns, self._bytes_per_s = plan.delay_ns, plan.rate_bytes_per_s
        self._loss, self._jitter_ns = plan.impairments.loss, plan.impairments.jitter_ns
        self._draw = Random(seed).random  # noqa: S311 - nothing is kept secret by it
        self._due_ns = self._free_ns = 0

    def carried_ns(self, now_ns: int, wire_bytes: int) -> int:
        """Return when a packet that comes now has been delayed and serialised, -1 if it is lost."""
        if self._loss and self._draw() < self._loss:
            return -1
        due_ns = now_ns + self._delay_ns
        if self._jitter_ns:
            due_ns += int((2 * self._draw() - 1) * self._jitter_ns)
            due_ns = self._due_ns = max(due_ns, self._due_ns)
        if self._bytes_per_s is None:
            return due_ns
        self._free_ns = max(due_ns, self._free_ns) + wire_bytes * _NS_PER_S // self._bytes_per_s
        return self._free_ns


class _Waiting(NamedTuple):
    """A packet in a leaf of a shared port, which it may leave from ``ready_ns`` on."""

    ready_ns: int
    passes: _Passes
    carried: _Carried


class SharedPort:
    """A port whose leaves share a rate.

    Its bucket passes a packet while it is not overdrawn, and is charged with the packet then. Leaves take turns, of a
    quantum of bytes each, in the order of their classes (deficit round robin).
    """

    __slots__ = (
        "_active",
        "_bucket_ns",
        "_bytes_per_s",
        "_charged_ns",
        "_deficits",
        "_events",
        "_most_ns",
        "_overdrawn_until_ns",
        "_quantum_bytes",
        "_queues",
        "_turn",
    )

    def __init__(self, events: EventQueue, shared: SharedRate) -> None:
        self._events = events
        self._bytes_per_s = shared.rate_bytes_per_s
        self._quantum_bytes = shared.quantum_bytes
        self._most_ns = self._bucket_ns = shared.burst_us * 1000
        self._charged_ns = 0
        self._overdrawn_until_ns = -1
        self._queues: dict[int, deque[_Waiting]] = {}
        self._deficits: dict[int, int] = {}
        self._active: list[int] = []
        self._turn = 0

    def enter(self, now_ns: int, minor: int, ready_ns: int, passes: _Passes, carried: _Carried) -> None:
        """Take a packet into the leaf of a class, which it may leave at ``ready_ns``; ``passes`` takes it then."""
        queue = self._queues.get(minor)
        if queue is None:
            queue = self._queues[minor] = deque()
            self._deficits[minor] = 0
        queue.append(_Waiting(ready_ns, passes, carried))
        if len(queue) == 1:
            insort(self._active, minor)
            self._events.at(ready_ns, self._serve, None)

    def _serve(self, now_ns: int, _: None) -> None:
        """Pass on what is ready, until the bucket is overdrawn."""
        if now_ns < self._overdrawn_until_ns:
            return
        while True:
            self._bucket_ns = min(self._most_ns, self._bucket_ns + now_ns - self._charged_ns)
            self._charged_ns = now_ns
            if self._bucket_ns < 0:
                self._overdrawn_until_ns = now_ns - self._bucket_ns
                self._events.at(self._overdrawn_until_ns, self._serve, None)
                return
            minor = self._next_ready(now_ns)
            if minor < 0:
                return
            self._pass_from(minor, now_ns)

    def _next_ready(self, now_ns: int) -> int:
        """Return the first class from the one whose turn it is that has a packet to pass, -1 if there is none."""
        active = self._active
        count, first = len(active), bisect_left(active, self._turn)
        for place in range(first, first + count):
            minor = active[place % count]
            if self._queues[minor][0].ready_ns <= now_ns:
                return minor
        return -1

    def _pass_from(self, minor: int, now_ns: int) -> None:
        queue = self._queues[minor]
        _, passes, carried = queue.popleft()
        self._bucket_ns -= carried.wire_bytes * _NS_PER_S // self._bytes_per_s
        self._turn = minor
        self._deficits[minor] -= carried.wire_bytes
        if self._deficits[minor] < 0:
            self._deficits[minor] += self._quantum_bytes
            self._turn = minor + 1
        if not queue:
            self._active.remove(minor)
        elif queue[0].ready_ns > now_ns:
            self._events.at(queue[0].ready_ns, self._serve, None)
        passes(now_ns, carried)


class _Hop:
    """A gateway's port on the way to one host: a leaf, and the port's bucket if it shares its rate."""

    __slots__ = ("_events", "_leaf", "_minor", "_passes", "_port")

    def __init__(self, events: EventQueue, leaf: Leaf, port: SharedPort | None, minor: int, passes: _Passes) -> None:
        self._events, self._leaf, self._port, self._minor, self._passes = events, leaf, port, minor, passes

    def enter(self, now_ns: int, carried: _Carried) -> None:
        ready_ns = self._leaf.carried_ns(now_ns, carried.wire_bytes)
        if ready_ns < 0:
            return
        if self._port is not None:
            self._port.enter(now_ns, self._minor, ready_ns, self._passes, carried)
        else:
            self._events.at(ready_ns, self._passes, carried)


def _arrive(now_ns: int, carried: _Carried) -> None:
    carried.arrives(now_ns, carried.what)


class Way:
    """The way of packets from one host to another."""

    __slots__ = ("_bytes_per_s", "_enter", "_lines")

    def __init__(self, enter: _Passes, bytes_per_s: int | None, lines: tuple[int, ...] = ()) -> None:
        self._enter, self._bytes_per_s, self._lines = enter, bytes_per_s, lines

    @staticmethod
    def over(events: EventQueue, plan: NetemPlan, seed: str = "") -> "Way":
        """Return the way over a single leaf."""
        rate = plan.rate_bytes_per_s
        return Way(_Hop(events, Leaf(plan, seed), None, 0, _arrive).enter, rate, _limited(rate))

    def send(self, now_ns: int, wire_bytes: int, arrives: Callable[[int, Any], None], what: Any) -> None:
        """Send a packet of so many bytes; ``arrives`` is called with the time and ``what``, unless it is lost."""
        self._enter(now_ns, _Carried(wire_bytes, arrives, what))

    def carrying_ns(self, wire_bytes: int) -> int:
        """Return how long the narrowest line takes for a packet."""
        return 0 if self._bytes_per_s is None else wire_bytes * _NS_PER_S // self._bytes_per_s

    def serialising_ns(self, wire_bytes: int) -> int:
        """Return how long all its lines together take for a packet that waits behind no other."""
        return sum(wire_bytes * _NS_PER_S // bytes_per_s for bytes_per_s in self._lines)


def _limited(*rates: int | None) -> tuple[int, ...]:
    return tuple(rate for rate in rates if rate is not None)


class Gateways:
    """The gateways of a plan. ``seed`` determines all draws."""

    def __init__(self, plan: GatewayPlan, events: EventQueue, seed: str) -> None:
        self._events, self._seed = events, seed
        self._of_host: dict[str, tuple[Gateway, HostPort]] = {
            port.host: (gateway, port) for gateway in plan.gateways for port in gateway.host_ports
        }
        self._ports: dict[tuple[str, str], SharedPort] = {}
        self._ways: dict[tuple[str, str], Way] = {}

    def way(self, source: str, destination: str) -> Way:
        """Return the way from one host to another."""
        hosts = source, destination
        if hosts not in self._ways:
            self._ways[hosts] = self._made(*hosts)
        return self._ways[hosts]

    def super_packet_frames(self, host: str) -> int | None:
        """Return how many full frames a host may send as one packet, None if its kernel chooses."""
        return self._of_host[host][0].super_packet_frames

    def _made(self, source: str, destination: str) -> Way:
        here, from_port = self._of_host[source]
        there, port = self._of_host[destination]
        if here is there:
            return Way(*self._at_host(port, from_port, port.intra), _limited(port.intra.rate_bytes_per_s))
        far = next((each for each in port.far if each.datacenter_index == from_port.datacenter_index), None)
        last, last_rate = (_arrive, None) if far is None else self._at_host(port, from_port, far.netem)
        wan = next(each for each in here.wan_ports if each.peer == there.datacenter)
        shared = None if wan.trunk is None else self._shared((here.datacenter, there.datacenter), wan.trunk)
        minor = pair_class(from_port.host_index, port.host_index, len(wan.destinations))
        leaf = Leaf(wan.netem, f"{self._seed} {source} {destination}")
        hop = _Hop(self._events, leaf, shared, minor, last)
        trunk_rate = None if wan.trunk is None else wan.trunk.rate_bytes_per_s
        lines = _limited(wan.netem.rate_bytes_per_s, None if far is None else far.netem.rate_bytes_per_s)
        rates = _limited(wan.netem.rate_bytes_per_s, trunk_rate, last_rate)
        return Way(hop.enter, min(rates, default=None), lines)

    def _at_host(self, port: HostPort, source: HostPort, netem: NetemPlan) -> tuple[_Passes, int | None]:
        """Return what takes packets from one host at the port of another, and the port's rate."""
        shared = None if port.shared is None else self._shared((port.host, ""), port.shared)
        minor = source_class(source.datacenter_index, source.host_index)
        hop = _Hop(self._events, Leaf(netem), shared, minor, _arrive)
        return hop.enter, port.shared.rate_bytes_per_s if port.shared is not None else netem.rate_bytes_per_s

    def _shared(self, ends: tuple[str, str], shared: SharedRate) -> SharedPort:
        if ends not in self._ports:
            self._ports[ends] = SharedPort(self._events, shared)
        return self._ports[ends]
