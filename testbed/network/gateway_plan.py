"""Describe the gateways of a testbed as plain data, the same for every substrate.

Each datacenter has one gateway: a router with a port for each of its hosts and a port for each other datacenter.
Packets are shaped when they leave a gateway's port; the hosts' own interfaces are unshaped. A netem leaf delays
packets and serialises them at a rate, as a line does. HTB above the leaves is used only for a rate that several leaves
share:

- Towards another datacenter: a netem leaf for each node pair, with the link's latency and the pair's rate, and HTB for
  the trunk. netem fixes when a packet leaves as soon as it comes. So if the pair's rate changes, the leaf has the
  highest of its rates, and HTB has the rate of the moment, at which all leaves that wait, also what came before.
- Towards a host: the latency inside the datacenter, but only for packets from the same datacenter. Between two
  datacenters the latency is thus that of their WAN link alone. If hosts' ports have a rate: a leaf for each sending
  host, and HTB for the port.

Only the standard library is used: the gateway guest loads this plan too and starts faster without other packages.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from wanbed.ground.dataclass_json import from_document
from wanbed.ground.impairments import UNIMPAIRED, Impairments
from wanbed.testbed.network.ethernet import FRAME_BYTES, MTU_BYTES


@dataclass(frozen=True)
class NetemPlan:
    """One netem leaf: one-way delay, packet limit, rate, and impairments, which are ``rounded``.

    A packet leaves the leaf once it has been serialised at ``rate_bytes_per_s`` behind the packets before it; None is
    no limit. Packets leave in the order in which they came if there is a rate or a jitter, or if it ``keeps_order``,
    which only a leaf without either has to be told. Otherwise they overtake each other when the delay becomes shorter.
    """

    delay_ns: int
    limit_packets: int
    rate_bytes_per_s: int | None = None
    impairments: Impairments = UNIMPAIRED
    keeps_order: bool = False

    def document(self) -> dict[str, Any]:
        """Return the plan in plain JSON types, as in manifests."""
        return {
            "delay_ns": self.delay_ns,
            **asdict(self.impairments),
            "limit_packets": self.limit_packets,
            "rate_bytes_per_s": self.rate_bytes_per_s,
            **({"keeps_order": True} if self.keeps_order else {}),
        }


_QUANTUM_MAX_BYTES = 60_000


@dataclass(frozen=True)
class SharedRate:
    """A rate that the classes of one port share, and its token bucket, as the time that the bucket takes to send."""

    rate_bytes_per_s: int
    burst_us: int

    @property
    def quantum_bytes(self) -> int:
        """The bytes that a class sends in its turn: as many as the bucket, but one frame to 60,000 bytes."""
        burst_bytes = self.rate_bytes_per_s * self.burst_us // 10**6
        return max(FRAME_BYTES, min(_QUANTUM_MAX_BYTES, burst_bytes))


@dataclass(frozen=True)
class PortState:
    """The state of a WAN port that changes in a trial: its node pairs' leaves, and the trunk, None if unlimited.

    ``pair`` is the rate of each node pair above its leaf. It is None if it is unlimited, or if the leaf has it because
    it does not change.
    """

    netem: NetemPlan
    trunk: SharedRate | None
    pair: SharedRate | None = None


@dataclass(frozen=True)
class PortCourse:
    """The changes of a WAN port: at each of ``steps``, a time since training began, to the state of that number.

    The first step is at 0. The last state holds for ever, or until ``period_ns``, when the course begins anew.
    """

    states: tuple[PortState, ...]
    steps: tuple[tuple[int, int], ...]
    period_ns: int | None = None

    def at(self, time_ns: int) -> PortState:
        """Return the state at a time since training began."""
        within_ns = time_ns if self.period_ns is None else time_ns % self.period_ns
        return self.states[self.steps[bisect_right(self.steps, within_ns, key=lambda step: step[0]) - 1][1]]

    def changes(self) -> Iterator[tuple[int, PortState]]:
        """Yield every change after the first state: its time and the new state, in order; perhaps for ever."""
        begin_ns, previous = 0, self.steps[0][1]
        while True:
            for at_ns, number in self.steps:
                if number != previous:
                    yield begin_ns + at_ns, self.states[number]
                previous = number
            if self.period_ns is None or all(number == previous for _, number in self.steps):
                return
            begin_ns += self.period_ns

    def changed(self, change: Callable[[NetemPlan], NetemPlan]) -> "PortCourse":
        """Return the same course with ``change`` made to the leaves of every state."""
        return replace(self, states=tuple(replace(each, netem=change(each.netem)) for each in self.states))


@dataclass(frozen=True)
class FarHosts:
    """The hosts of another datacenter, numbered from 0 to ``hosts`` - 1, and the leaf of each at a host's port."""

    datacenter_index: int
    hosts: int
    netem: NetemPlan


@dataclass(frozen=True)
class HostPort:
    """A gateway's port to one of its hosts.

    ``intra`` is the leaf for each sender in the same datacenter. If it has a rate, the port has the same rate, and
    senders in other datacenters have leaves as well, ``far``. ``shared`` is None if all senders together cannot exceed
    the port's rate.
    """

    host: str
    host_index: int
    host_address: str
    host_mac: str
    gateway_mac: str
    datacenter_index: int
    intra: NetemPlan
    far: tuple[FarHosts, ...]
    shared: SharedRate | None


@dataclass(frozen=True)
class WanPort:
    """A gateway's port to another datacenter, with one class for each node pair, numbered by ``pair_class``.

    ``trunk`` is None if all node pairs together cannot exceed its rate. ``trunk``, ``netem`` and ``pair`` are those
    that hold now of a port that has a ``course``, which is None if the port does not change during a trial.
    """

    peer: str
    peer_gateway: str
    peer_subnet: str
    mac: str
    peer_mac: str
    trunk: SharedRate | None
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    netem: NetemPlan
    course: PortCourse | None = None
    pair: SharedRate | None = None

    @cached_property
    def trunks(self) -> tuple[SharedRate | None, ...]:
        """The trunk of every state that the port is ever in."""
        return (self.trunk,) if self.course is None else tuple(state.trunk for state in self.course.states)

    def holding(self, state: PortState) -> "WanPort":
        """Return the same port in a state of its course."""
        return replace(self, netem=state.netem, trunk=state.trunk, pair=state.pair)


@dataclass(frozen=True)
class Gateway:
    """One datacenter's router.

    ``super_packet_frames`` is how many full frames its hosts may send as one packet; None leaves it to their kernel.
    """

    datacenter: str
    address: str
    subnet: str
    host_ports: tuple[HostPort, ...]
    wan_ports: tuple[WanPort, ...]
    super_packet_frames: int | None = None


@dataclass(frozen=True)
class GatewayPlan:
    """Every gateway of a testbed. If ``exact_packets`` is true, no segmentation offload may cross the gateways.

    ``mtu_bytes`` is that of every interface.
    """

    gateways: tuple[Gateway, ...]
    exact_packets: bool
    mtu_bytes: int = MTU_BYTES

    def to_json(self) -> str:
        """Return the plan as one JSON document."""
        return json.dumps(asdict(self))

    def with_less_wan_delay(self, trim_ns: int) -> "GatewayPlan":
        """Return the same plan with every WAN port's delay reduced by ``trim_ns``, but not below zero."""
        return self._with_wan_netem(lambda netem: replace(netem, delay_ns=max(0, netem.delay_ns - trim_ns)))

    def at(self, time_ns: int) -> "GatewayPlan":
        """Return the same plan with every port that changes as it is at a time since training began."""
        return self._with_wan_ports(lambda port: port if port.course is None else port.holding(port.course.at(time_ns)))

    def without_impairments(self) -> "GatewayPlan":
        """Return the same plan without impairments on the WAN, so that a few echoes can measure its delay."""
        return self._with_wan_netem(lambda netem: replace(netem, impairments=UNIMPAIRED))

    def _with_wan_netem(self, changed: Callable[[NetemPlan], NetemPlan]) -> "GatewayPlan":
        def with_netem(port: WanPort) -> WanPort:
            course = None if port.course is None else port.course.changed(changed)
            return replace(port, netem=changed(port.netem), course=course)

        return self._with_wan_ports(with_netem)

    def _with_wan_ports(self, changed: Callable[[WanPort], WanPort]) -> "GatewayPlan":
        gateways = tuple(
            replace(gateway, wan_ports=tuple(map(changed, gateway.wan_ports))) for gateway in self.gateways
        )
        return replace(self, gateways=gateways)

    @staticmethod
    def from_json(text: str) -> "GatewayPlan":
        """Read what ``to_json`` wrote."""
        return from_document(GatewayPlan, json.loads(text))


FIRST_PAIR_CLASS = 0x10


def pair_class(source_index: int, destination_index: int, destinations: int) -> int:
    """Return the minor number of the HTB class of one node pair: row-major over (source, destination), from 0x10."""
    return FIRST_PAIR_CLASS + source_index * destinations + destination_index


_HOSTS_NUMBERED = 256


def source_class(datacenter_index: int, host_index: int) -> int:
    """Return the minor number of the HTB class, at a host's port, for packets from one sending host."""
    return FIRST_PAIR_CLASS + datacenter_index * _HOSTS_NUMBERED + host_index
