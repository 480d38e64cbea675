"""Cut hosts off from the network, and connect them again.

Every path of a host goes over its one interface to its gateway. Taking that down is a failure of the host as others see
it, and for all hosts of a datacenter one of its gateway: nothing leaves them and nothing reaches them, nor do their
ends of connections tell the others.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from testbed.hosts.host_attachment import add_route
from testbed.kernel.gateway_programming import link_index
from testbed.kernel.namespace import open_netlink
from testbed.network.gateway_plan import Gateway, GatewayPlan, HostPort
from testbed.network.host_interface import HOST_INTERFACE
from testbed.running_testbed import RunningTestbed
from testbed.substrate.offer import GUEST


def cut_off(testbed: RunningTestbed, hosts: Iterable[str]) -> None:
    """Take the hosts' interfaces down, all on this machine.

    The gateway guest gives an interface up for good whose other end is down. There the host loses its only
    address: its kernel then drops the routes too, and sends and accepts as little.
    """
    for host in hosts:
        _, port = _port(testbed.gateway_plan, host)
        with _interface(testbed, host) as (netlink, index):
            if testbed.facts.name == GUEST:
                netlink.addr("del", index=index, address=port.host_address, prefixlen=32)
            else:
                netlink.link("set", index=index, state="down")


def connect_again(testbed: RunningTestbed, hosts: Iterable[str]) -> None:
    """Take the hosts' interfaces up, with the address, the route and the neighbour that the kernel dropped."""
    for host in hosts:
        gateway, port = _port(testbed.gateway_plan, host)
        with _interface(testbed, host) as (netlink, index):
            if testbed.facts.name == GUEST:
                netlink.addr("add", index=index, address=port.host_address, prefixlen=32)
            else:
                netlink.link("set", index=index, state="up")
            add_route(netlink, index, gateway, port)


@contextmanager
def _interface(testbed: RunningTestbed, host: str) -> Iterator[tuple[Any, int]]:
    netlink = open_netlink(testbed.namespace(host))
    try:
        yield netlink, link_index(netlink, HOST_INTERFACE)
    finally:
        netlink.close()


def _port(plan: GatewayPlan, host: str) -> tuple[Gateway, HostPort]:
    return next((gateway, port) for gateway in plan.gateways for port in gateway.host_ports if port.host == host)
