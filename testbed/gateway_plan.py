"""What the gateways of a testbed shall look like: plain data, the same for every substrate.

Per datacenter there is one gateway: a router with a port for each of its hosts and a port for each other datacenter.
Shaping happens on what leaves a gateway's port (the hosts' own interfaces stay unshaped):

- towards another datacenter: HTB at the trunk's rate, a class for each node pair at its cap, netem below each class;
- towards a host: HTB at the intra-datacenter rate, with netem only for traffic from the same datacenter, so that the
  latency between hosts of two datacenters is that of their WAN link and of nothing else.

Only the standard library is used, because a guest kernel reads this plan too and starts faster without more.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

LOSS_DIGITS = 9
"""Decimals of a loss that a plan keeps: the kernel, which counts in 2^-32, gives as many back as they were."""


@dataclass(frozen=True)
class NetemPlan:
    """One netem leaf: one-way delay, uniform jitter around it, random loss, and how many packets it may hold.

    ``loss`` has ``LOSS_DIGITS`` decimals at most.
    """

    delay_ns: int
    jitter_ns: int
    loss: float
    limit_packets: int


@dataclass(frozen=True)
class HostPort:
    """A gateway's port to one of its hosts."""

    host: str
    host_index: int
    host_address: str
    host_mac: str
    gateway_mac: str
    rate_bps: int | None
    intra: NetemPlan


@dataclass(frozen=True)
class WanPort:
    """A gateway's port to another datacenter: one class for each pair of hosts, numbered by ``pair_class``."""

    peer: str
    peer_gateway: str
    peer_subnet: str
    mac: str
    peer_mac: str
    rate_bps: int | None
    pair_rate_bps: int | None
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    netem: NetemPlan


@dataclass(frozen=True)
class Gateway:
    """One datacenter's router."""

    datacenter: str
    address: str
    subnet: str
    host_ports: tuple[HostPort, ...]
    wan_ports: tuple[WanPort, ...]


@dataclass(frozen=True)
class GatewayPlan:
    """Every gateway of a testbed. ``exact_packets`` asks that no segmentation offload crosses the gateways."""

    gateways: tuple[Gateway, ...]
    exact_packets: bool

    def to_json(self) -> str:
        """The plan as one JSON document."""
        return json.dumps(asdict(self))

    def with_less_wan_delay(self, trim_ns: int) -> "GatewayPlan":
        """The same plan with ``trim_ns`` taken off every WAN port's delay, down to zero at most."""
        return self._with_wan_netem(lambda asked: replace(asked, delay_ns=max(0, asked.delay_ns - trim_ns)))

    def without_chance(self) -> "GatewayPlan":
        """The same plan with neither jitter nor loss on the WAN: a network whose delay a few echoes measure."""
        return self._with_wan_netem(lambda asked: replace(asked, jitter_ns=0, loss=0.0))

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
        gateways = tuple(
            Gateway(
                **{
                    **entry,
                    "host_ports": tuple(
                        HostPort(**{**port, "intra": NetemPlan(**port["intra"])}) for port in entry["host_ports"]
                    ),
                    "wan_ports": tuple(
                        WanPort(
                            **{
                                **port,
                                "netem": NetemPlan(**port["netem"]),
                                "sources": tuple(port["sources"]),
                                "destinations": tuple(port["destinations"]),
                            }
                        )
                        for port in entry["wan_ports"]
                    ),
                }
            )
            for entry in document["gateways"]
        )
        return GatewayPlan(gateways, document["exact_packets"])


FIRST_PAIR_CLASS = 0x10


def pair_class(source_index: int, destination_index: int, destinations: int) -> int:
    """Minor number of the HTB class of one node pair: row-major over (source, destination), from 0x10."""
    return FIRST_PAIR_CLASS + source_index * destinations + destination_index
