"""Describe the gateways of a testbed as plain data, the same for every substrate.

Per datacenter there is one gateway: a router with a port for each of its hosts and a port for each other datacenter.
Shaping happens on what leaves a gateway's port (the hosts' own interfaces stay unshaped). A netem leaf delays, and
serialises at a rate as a line does; HTB above the leaves is there only for what several of them share:

- towards another datacenter: a netem leaf for each node pair with the link's latency and the pair's rate, HTB for the
  trunk;
- towards a host: the latency inside a datacenter only for what comes from the same one, so that between two datacenters
  it is that of their WAN link and of nothing else. Where hosts' ports have a rate, a leaf for each host that sends, and
  HTB for the port.

Only the standard library is used, because a guest kernel reads this plan too and starts faster without more.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ground.impairments import UNIMPAIRED, Impairments


@dataclass(frozen=True)
class NetemPlan:
    """One netem leaf: one-way delay, how many packets it may hold, its rate, and what it does to packets beyond.

    ``impairments`` are ``rounded`` ones. A packet leaves the leaf once it has been serialised at ``rate_bytes_per_s``
    behind those before it; None is no limit.
    """

    delay_ns: int
    limit_packets: int
    rate_bytes_per_s: int | None = None
    impairments: Impairments = UNIMPAIRED

    def document(self) -> dict[str, Any]:
        """Return the plan in plain JSON types, as manifests have it."""
        return {
            "delay_ns": self.delay_ns,
            **asdict(self.impairments),
            "limit_packets": self.limit_packets,
            "rate_bytes_per_s": self.rate_bytes_per_s,
        }


@dataclass(frozen=True)
class SharedRate:
    """A rate that the classes of one port share, and how much of its time may be saved up while nothing is sent."""

    rate_bytes_per_s: int
    burst_us: int


@dataclass(frozen=True)
class FarHosts:
    """The hosts of another datacenter, numbered from 0, and the leaf of each of them at a host's port."""

    datacenter_index: int
    hosts: int
    netem: NetemPlan


@dataclass(frozen=True)
class HostPort:
    """A gateway's port to one of its hosts.

    ``intra`` is the leaf of each host of the same datacenter. If it has a rate, then so has the port, and senders are
    distinguished: those of other datacenters are ``far``. ``shared`` is None where they cannot exceed the port's rate
    together.
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
    """A gateway's port to another datacenter: one class for each pair of hosts, numbered by ``pair_class``.

    ``trunk`` is None where all pairs together cannot exceed its rate.
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


@dataclass(frozen=True)
class Gateway:
    """One datacenter's router.

    ``super_packet_frames`` is how many full frames its hosts may send as one packet, None as many as their kernel does.
    """

    datacenter: str
    address: str
    subnet: str
    host_ports: tuple[HostPort, ...]
    wan_ports: tuple[WanPort, ...]
    super_packet_frames: int | None = None


@dataclass(frozen=True)
class GatewayPlan:
    """Every gateway of a testbed. ``exact_packets`` asks that no segmentation offload crosses the gateways."""

    gateways: tuple[Gateway, ...]
    exact_packets: bool

    def to_json(self) -> str:
        """Return the plan as one JSON document."""
        return json.dumps(asdict(self))

    def with_less_wan_delay(self, trim_ns: int) -> "GatewayPlan":
        """Return the same plan with ``trim_ns`` taken off every WAN port's delay, but not below zero."""
        return self._with_wan_netem(lambda asked: replace(asked, delay_ns=max(0, asked.delay_ns - trim_ns)))

    def without_chance(self) -> "GatewayPlan":
        """Return the same plan with a WAN that only delays and serialises, so that a few echoes measure its delay."""
        return self._with_wan_netem(lambda asked: replace(asked, impairments=UNIMPAIRED))

    def _with_wan_netem(self, changed: Callable[[NetemPlan], NetemPlan]) -> "GatewayPlan":
        gateways = tuple(
            replace(gateway, wan_ports=tuple(replace(port, netem=changed(port.netem)) for port in gateway.wan_ports))
            for gateway in self.gateways
        )
        return replace(self, gateways=gateways)

    @staticmethod
    def from_json(text: str) -> "GatewayPlan":
        """Read what ``to_json`` wrote."""
        document = json.loads(text)
        return GatewayPlan(tuple(_gateway(entry) for entry in document["gateways"]), document["exact_packets"])


def _gateway(entry: dict[str, Any]) -> Gateway:
    host_ports = tuple(
        HostPort(
            **{
                **port,
                "intra": _netem(port["intra"]),
                "far": tuple(FarHosts(**{**far, "netem": _netem(far["netem"])}) for far in port["far"]),
                "shared": _shared_rate(port["shared"]),
            }
        )
        for port in entry["host_ports"]
    )
    wan_ports = tuple(
        WanPort(
            **{
                **port,
                "trunk": _shared_rate(port["trunk"]),
                "netem": _netem(port["netem"]),
                "sources": tuple(port["sources"]),
                "destinations": tuple(port["destinations"]),
            }
        )
        for port in entry["wan_ports"]
    )
    return Gateway(**{**entry, "host_ports": host_ports, "wan_ports": wan_ports})


def _netem(entry: dict[str, Any]) -> NetemPlan:
    return NetemPlan(**{**entry, "impairments": Impairments(**entry["impairments"])})


def _shared_rate(entry: dict[str, int] | None) -> SharedRate | None:
    return None if entry is None else SharedRate(**entry)


FIRST_PAIR_CLASS = 0x10


def pair_class(source_index: int, destination_index: int, destinations: int) -> int:
    """Return the minor number of the HTB class of one node pair: row-major over (source, destination), from 0x10."""
    return FIRST_PAIR_CLASS + source_index * destinations + destination_index


HOSTS_NUMBERED = 256


def source_class(datacenter_index: int, host_index: int) -> int:
    """Return the minor number of the HTB class, at a host's port, of what one host sends to it."""
    return FIRST_PAIR_CLASS + datacenter_index * HOSTS_NUMBERED + host_index
