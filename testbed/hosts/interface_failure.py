"""Cut hosts off by taking their interfaces down, and connect them again.

Every path of a host goes over its one interface to its gateway: while that is down, nothing leaves the host and nothing
reaches it, nor do its ends of connections tell the others.
"""

from collections.abc import Iterable

from testbed.hosts.host_attachment import add_route
from testbed.kernel.gateway_programming import link_index
from testbed.kernel.namespace import open_netlink
from testbed.network.gateway_plan import Gateway, GatewayPlan, HostPort
from testbed.network.host_interface import HOST_INTERFACE
from testbed.running_testbed import RunningTestbed


def cut_off(testbed: RunningTestbed, hosts: Iterable[str]) -> None:
    """Take the hosts' interfaces down, all on this machine."""
    for host in hosts:
        netlink = open_netlink(testbed.namespace(host))
        try:
            netlink.link("set", index=link_index(netlink, HOST_INTERFACE), state="down")
        finally:
            netlink.close()


def connect_again(testbed: RunningTestbed, hosts: Iterable[str]) -> None:
    """Take the hosts' interfaces up, with the routes that the kernel dropped when they went down."""
    for host in hosts:
        gateway, port = _port(testbed.gateway_plan, host)
        netlink = open_netlink(testbed.namespace(host))
        try:
            index = link_index(netlink, HOST_INTERFACE)
            netlink.link("set", index=index, state="up")
            add_route(netlink, index, gateway, port)
        finally:
            netlink.close()


def _port(plan: GatewayPlan, host: str) -> tuple[Gateway, HostPort]:
    return next((gateway, port) for gateway in plan.gateways for port in gateway.host_ports if port.host == host)
