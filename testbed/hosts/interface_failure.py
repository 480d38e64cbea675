"""Cut hosts off from the network, and connect them again.

Every path of a host goes over its one interface to its gateway. Taking that down is a failure of the host as others see
it, and for all hosts of a datacenter one of its gateway: nothing leaves them and nothing reaches them, nor do their
ends of connections tell the others.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wanbed.testbed.hosts.host_attachment import add_route
from wanbed.testbed.kernel.gateway_programming import link_index
from wanbed.testbed.kernel.namespace import open_netlink
from wanbed.testbed.network.gateway_plan import Gateway, GatewayPlan, HostPort
from wanbed.testbed.network.host_interface import HOST_INTERFACE


@dataclass(frozen=True)
class HostEnd:
    """A host's end of its link to the gateway.

    ``stays_up`` is for the gateway guest, which gives an interface up for good whose other end is down. There the host
    loses its only address: its kernel then drops the routes too, and sends and accepts as little.
    """

    namespace: str
    gateway: Gateway
    port: HostPort
    stays_up: bool

    @classmethod
    def of(cls, plan: GatewayPlan, host: str, namespace: str, *, stays_up: bool) -> "HostEnd":
        """Return the end of a host of that plan."""
        gateway, port = next(
            (gateway, port) for gateway in plan.gateways for port in gateway.host_ports if port.host == host
        )
        return cls(namespace, gateway, port, stays_up)


def cut_off(ends: Iterable[HostEnd]) -> None:
    """Take the hosts' interfaces down, all on this machine."""
    for end in ends:
        with _interface(end) as (netlink, index):
            if end.stays_up:
                netlink.addr("del", index=index, address=end.port.host_address, prefixlen=32)
            else:
                netlink.link("set", index=index, state="down")


def connect_again(ends: Iterable[HostEnd]) -> None:
    """Take the hosts' interfaces up, with the address, the route and the neighbour that the kernel dropped."""
    for end in ends:
        with _interface(end) as (netlink, index):
            if end.stays_up:
                netlink.addr("add", index=index, address=end.port.host_address, prefixlen=32)
            else:
                netlink.link("set", index=index, state="up")
            add_route(netlink, index, end.gateway, end.port)


@contextmanager
def _interface(end: HostEnd) -> Iterator[tuple[Any, int]]:
    netlink = open_netlink(end.namespace)
    try:
        yield netlink, link_index(netlink, HOST_INTERFACE)
    finally:
        netlink.close()
