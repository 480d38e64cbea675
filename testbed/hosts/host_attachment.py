"""Attach a host to its gateway (address, route, neighbour entry, TCP sysctls), cut it off, and connect it again.

Every path of a host goes over its one interface to its gateway. Taking that down is a failure of the host as others see
it, and for all hosts of a datacenter one of its gateway: nothing leaves them and nothing reaches them, nor do their
ends of connections tell the others.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wanbed.testbed.kernel.gateway_programming import NEIGHBOUR_PERMANENT, link_index
from wanbed.testbed.kernel.namespace import open_netlink, write_sysctls
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.network.gateway_plan import Gateway, GatewayPlan, HostPort
from wanbed.testbed.network.tcp_settings import TcpSettings

TCP_SYSCTLS = (
    *(f"net.ipv4.tcp_{name}" for name in ("rmem", "wmem", "congestion_control", "slow_start_after_idle")),
    *(f"net.ipv4.tcp_{name}" for name in ("no_metrics_save", "window_scaling", "timestamps", "sack", "dsack", "ecn")),
    *(f"net.ipv4.tcp_{name}" for name in ("moderate_rcvbuf", "adv_win_scale", "mtu_probing", "autocorking")),
    *(f"net.ipv4.tcp_{name}" for name in ("limit_output_bytes", "notsent_lowat", "recovery", "early_retrans")),
    *(f"net.ipv4.tcp_{name}" for name in ("pacing_ss_ratio", "pacing_ca_ratio", "min_rtt_wlen", "fastopen")),
)
"""The sysctls of a namespace that affect the throughput of a connection, whether a testbed sets them or not."""


def attach_host(namespace: str, gateway: Gateway, port: HostPort, mtu_bytes: int) -> None:
    """Configure the interface ``eth0``, which must exist in the host's namespace, and set the default TCP settings."""
    netlink = open_netlink(namespace)
    try:
        index = link_index(netlink, HOST_INTERFACE)
        netlink.link("set", index=link_index(netlink, "lo"), state="up")
        if gateway.super_packet_frames is not None:
            netlink.link("set", index=index, gso_max_segs=gateway.super_packet_frames)
        netlink.link("set", index=index, mtu=mtu_bytes, address=port.host_mac)
        netlink.link("set", index=index, state="up")
        netlink.addr("add", index=index, address=port.host_address, prefixlen=32)
        _add_route(netlink, index, gateway, port)
    finally:
        netlink.close()
    write_sysctls(namespace, TcpSettings().sysctls())


def _add_route(netlink: Any, index: int, gateway: Gateway, port: HostPort) -> None:
    """Add the route to the gateway and its neighbour entry, which the kernel drops when the interface goes down."""
    netlink.neigh("add", dst=gateway.address, lladdr=port.gateway_mac, ifindex=index, state=NEIGHBOUR_PERMANENT)
    netlink.route("add", dst="0.0.0.0/0", gateway=gateway.address, oif=index, flags=["onlink"])


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
            _add_route(netlink, index, end.gateway, end.port)


@contextmanager
def _interface(end: HostEnd) -> Iterator[tuple[Any, int]]:
    netlink = open_netlink(end.namespace)
    try:
        yield netlink, link_index(netlink, HOST_INTERFACE)
    finally:
        netlink.close()
