"""Carry one machine's part of an emulated network: its gateway, its hosts' ports, and its devices to other machines.

All of it is programmed over netlink according to its plan, and verified by reading it back from the kernel.

A device is created from the machine's own namespace, so that it rides on the card there, but directly in the gateway's:
it never appears beside the card, and it ends with the gateway. Nothing of the card is changed: qdiscs, routes and
addresses belong to the new device. Nothing is learned from packets either. Each host that another machine carries has a
route and a permanent neighbour entry, and each other machine has a forwarding entry with its card's address.
"""

import errno
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from wanbed.ground.errors import MissingError
from wanbed.testbed.hosts.host import HostNetwork
from wanbed.testbed.kernel.changing_ports import ChangingPorts
from wanbed.testbed.kernel.course_run import KernelCourses
from wanbed.testbed.kernel.gateway_programming import (
    GATEWAY_SYSCTLS,
    NEIGHBOUR_PERMANENT,
    attach_host_port,
    host_interface,
    link_index,
)
from wanbed.testbed.kernel.link_counters import PortCounters, StatisticsReader, port_counters
from wanbed.testbed.kernel.namespace import open_netlink, opened, write_sysctls
from wanbed.testbed.kernel.offloads import read_offloads
from wanbed.testbed.kernel.port_shape import PortShape, describe, host_port_shape, wan_port_shape
from wanbed.testbed.kernel.qdiscs import ReadBackError, apply_shape, change_netem, read_shape
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.network.gateway_plan import WanPort
from wanbed.testbed.rack.machine.wireguard_tunnel import WireGuardTunnel
from wanbed.testbed.rack.machine_plan import VXLAN, MachineLink, MachinePlan
from wanbed.testbed.substrate.host_kernel import UNSHAPED
from wanbed.testbed.substrate.substrate import SubstrateError, SubstrateFacts

VXLAN_PORT = 14789
"""The UDP port at which machines receive. It is not VXLAN's registered one, which other overlays of the machine use."""

_REMOVAL_S = 5.0
"""The time in which the kernel removes the devices of a run that has just ended, whose numbers it may still hold."""


@dataclass(frozen=True)
class OverlayDevice:
    """A device as the kernel has it. ``vxlan`` has its number, local address, port and whether it learns.

    ``neighbours`` are the MAC address behind each host's address, ``cards`` a machine's address behind each of these,
    ``routes`` the destinations. ``card_index`` is the interface that the device rides on.
    """

    kind: str
    mac: str
    mtu_bytes: int
    card_index: int
    vxlan: tuple[int, str, int, bool]
    neighbours: frozenset[tuple[str, str]]
    cards: frozenset[tuple[str, str]]
    routes: frozenset[str]


def _make_link(own: Any, gateway: Any, namespace: str, plan: MachinePlan, link: MachineLink) -> None:
    """Create one device and all its entries. ``own`` and ``gateway`` are netlink sockets in both namespaces.

    In ``own`` is what the devices ride on: the card, or the tunnel if there is one.

    Raise MissingError if the kernel has no VXLAN, SubstrateError if it refuses this one.
    """
    card = _card_index(own, plan)
    deadline_s = time.monotonic() + _REMOVAL_S
    while not _added(own, namespace, plan, link, card):
        if time.monotonic() > deadline_s:
            raise SubstrateError(
                f"machine {plan.machine}: VXLAN number {link.vni} at UDP port {VXLAN_PORT} is in use, perhaps by "
                "another run: end that one"
            )
        time.sleep(_REMOVAL_S / 100)
    index = link_index(gateway, link.interface)
    gateway.link("set", index=index, state="up")
    for far in link.far:
        gateway.fdb("append", ifindex=index, lladdr=far.mac, dst=far.carrying_address)
        for address in far.host_addresses:
            gateway.neigh("add", dst=address, lladdr=far.mac, ifindex=index, state=NEIGHBOUR_PERMANENT)
            gateway.route("add", dst=f"{address}/32", oif=index, prefsrc=plan.gateway.address)


def _added(own: Any, namespace: str, plan: MachinePlan, link: MachineLink, card: int) -> bool:
    """Create the device itself. Return False if another one has its number."""
    with opened(namespace) as gateway_namespace:
        try:
            own.link(
                "add",
                ifname=link.interface,
                kind=VXLAN,
                address=link.mac,
                mtu=plan.mtu_bytes,
                net_ns_fd=gateway_namespace,
                vxlan_id=link.vni,
                vxlan_link=card,
                vxlan_local=plan.carrying_address,
                vxlan_port=VXLAN_PORT,
                vxlan_learning=0,
            )
        except NetlinkError as fault:
            if fault.code == errno.EEXIST:
                return False
            raise _refusal(fault, plan) from fault
    return True


def _card_index(own: Any, plan: MachinePlan) -> int:
    """Return the index of the machine's card or tunnel. Raise SubstrateError if it has no interface of that name."""
    try:
        return link_index(own, plan.carrying_interface)
    except LookupError:
        raise SubstrateError(f"machine {plan.machine}: it has no interface {plan.carrying_interface!r}") from None


def _refusal(fault: NetlinkError, plan: MachinePlan) -> Exception:
    where = f"machine {plan.machine}"
    if fault.code == errno.EOPNOTSUPP:
        return MissingError(f"{where}: the kernel {os.uname().release} has no {VXLAN} devices: modprobe {VXLAN}")
    reason = os.strerror(fault.code) if fault.code else str(fault)
    return SubstrateError(f"{where}: no {VXLAN} device on {plan.carrying_interface}: {reason}")


def _planned_state(plan: MachinePlan, link: MachineLink, card: int) -> OverlayDevice:
    """Return the state that the kernel must have after ``_make_link``."""
    hosts = [(address, far.mac) for far in link.far for address in far.host_addresses]
    return OverlayDevice(
        kind=VXLAN,
        mac=link.mac,
        mtu_bytes=plan.mtu_bytes,
        card_index=card,
        vxlan=(link.vni, plan.carrying_address, VXLAN_PORT, False),
        neighbours=frozenset(hosts),
        cards=frozenset((far.mac, far.carrying_address) for far in link.far),
        routes=frozenset(address for address, _ in hosts),
    )


def _read_state(gateway: Any, interface: str) -> OverlayDevice:
    """Read a VXLAN device from the kernel. Raise LookupError if there is none of that name."""
    index = link_index(gateway, interface)
    (message,) = gateway.get_links(index)
    info = message.get_attr("IFLA_LINKINFO")
    options = info.get_attr("IFLA_INFO_DATA")
    return OverlayDevice(
        kind=info.get_attr("IFLA_INFO_KIND"),
        mac=message.get_attr("IFLA_ADDRESS"),
        mtu_bytes=message.get_attr("IFLA_MTU"),
        card_index=options.get_attr("IFLA_VXLAN_LINK"),
        vxlan=(
            options.get_attr("IFLA_VXLAN_ID"),
            options.get_attr("IFLA_VXLAN_LOCAL"),
            options.get_attr("IFLA_VXLAN_PORT"),
            bool(options.get_attr("IFLA_VXLAN_LEARNING")),
        ),
        neighbours=frozenset(
            (entry.get_attr("NDA_DST"), entry.get_attr("NDA_LLADDR"))
            for entry in gateway.get_neighbours(ifindex=index, state=NEIGHBOUR_PERMANENT)
        ),
        cards=frozenset(
            (entry.get_attr("NDA_LLADDR"), entry.get_attr("NDA_DST")) for entry in gateway.fdb("dump", ifindex=index)
        ),
        routes=frozenset(
            entry.get_attr("RTA_DST") for entry in gateway.get_routes(oif=index) if entry["dst_len"] == 32
        ),
    )


OWN_NAMESPACE = "/proc/thread-self/ns/net"
_LOOPBACK_INDEX = 1


class _MachineProgrammer:
    """Program the gateway in ``namespace``, with devices that ride on the card in this process's namespace.

    A plan with a tunnel finds that in ``namespace`` already, and the devices ride on it.

    ``program`` builds the network without impairments, so that its delay can be measured; ``settle`` completes it.
    The programmer keeps netlink sockets until ``close``.
    """

    def __init__(self, plan: MachinePlan, namespace: str) -> None:
        self._configured = plan
        self.plan = plan.without_impairments()
        self._namespace = namespace
        self._netlink = open_netlink(namespace)
        self._statistics = StatisticsReader(namespace)
        self._interfaces = {link.datacenter: link.interface for link in plan.links}
        self._wan_indices: dict[str, int] = {}
        self._changing: ChangingPorts | None = None

    def close(self) -> None:
        """Close the netlink sockets, which releases the namespace."""
        self._netlink.close()
        self._statistics.close()
        if self._changing is not None:
            self._changing.close()

    def changing(self) -> ChangingPorts:
        """Return the ports that change, once they are settled; they are in their first states."""
        if self._changing is None:
            namespaces = {self.plan.gateway.datacenter: self._namespace}
            self._changing = ChangingPorts(
                self.plan.alone(), namespaces, lambda _, port: self._wan_index(port), self.plan.senders
            )
        return self._changing

    def program(self) -> None:
        """Create devices, addresses, routes and qdiscs. Raise ReadBackError if the kernel's state is not the plan's."""
        self.connect()
        for interface, shape in self._shapes():
            apply_shape(self._netlink, link_index(self._netlink, interface), shape)
        self.verify()

    def connect(self) -> None:
        """Create devices, addresses and routes, without qdiscs. Raise ReadBackError if a device is not as planned."""
        write_sysctls(self._namespace, GATEWAY_SYSCTLS)
        self._netlink.link("set", index=_LOOPBACK_INDEX, state="up")
        for port in self.plan.host_ports:
            attach_host_port(self._netlink, self.plan.gateway, port, self.plan.mtu_bytes)
        if not self.plan.host_ports:
            # A machine that only forwards has the gateway's address nowhere else.
            self._netlink.addr("add", index=_LOOPBACK_INDEX, address=self.plan.gateway.address, prefixlen=32)
        own = open_netlink(self._namespace if self.plan.tunnel_address else OWN_NAMESPACE)
        try:
            for link in self.plan.links:
                _make_link(own, self._netlink, self._namespace, self.plan, link)
            card = _card_index(own, self.plan)
        finally:
            own.close()
        for link in self.plan.links:
            configured, held = _planned_state(self.plan, link, card), _read_state(self._netlink, link.interface)
            if held != configured:
                raise self._difference(link.interface, configured, held)

    def settle(self, trim_ns: int) -> None:
        """Set the configured impairments, and delays ``trim_ns`` below the configured ones. Raise ReadBackError."""
        previous, self.plan = self.plan, self._configured.with_less_wan_delay(trim_ns)
        if self.plan == previous:
            return
        for port in self.plan.gateway.wan_ports:
            change_netem(self._netlink, self._wan_index(port), self._wan_shape(port))
        self.verify()

    def verify(self) -> None:
        """Compare the qdiscs of every port with the plan. Raise ReadBackError at the first difference."""
        for interface, configured in self._shapes():
            held = self._held(interface)
            if held != configured:
                raise self._difference(interface, configured, held)

    def _difference(self, interface: str, configured: object, held: object) -> ReadBackError:
        return ReadBackError(f"{self.plan.machine} {interface}: configured {configured}, the kernel holds {held}")

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel, formatted by ``describe``, by ``machine interface``."""
        return {f"{self.plan.machine} {interface}": describe(self._held(interface)) for interface, _ in self._shapes()}

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port and of the card, by ``machine interface``."""
        ports = [host_interface(port.host_index) for port in self.plan.host_ports]
        held = read_offloads(self._namespace, [*ports, *self._interfaces.values()])
        held |= read_offloads(OWN_NAMESPACE, [self.plan.underlay.interface])
        return {f"{self.plan.machine} {interface}": facts for interface, facts in held.items()}

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port, for the hosts that send through this machine as sources."""
        qdiscs = self._statistics.qdiscs() if self.plan.gateway.wan_ports else []
        counters = []
        for port in self.plan.gateway.wan_ports:
            index = self._wan_index(port)
            of_port = [qdisc for qdisc in qdiscs if qdisc.interface == index]
            classes = self._statistics.classes(index)
            senders = self.plan.senders
            counters.append(port_counters(self.plan.gateway.datacenter, port, classes, of_port, senders))
        return counters

    def _wan_index(self, port: WanPort) -> int:
        """Return the index of a WAN port's interface. Cached: it does not change while the network is up."""
        if port.peer not in self._wan_indices:
            self._wan_indices[port.peer] = link_index(self._netlink, self._interfaces[port.peer])
        return self._wan_indices[port.peer]

    def _held(self, interface: str) -> PortShape:
        return read_shape(self._netlink, link_index(self._netlink, interface))

    def _shapes(self) -> Iterator[tuple[str, PortShape]]:
        for port in self.plan.host_ports:
            yield host_interface(port.host_index), host_port_shape(self.plan.gateway, port)
        for wan_port in self.plan.gateway.wan_ports:
            yield self._interfaces[wan_port.peer], self._wan_shape(wan_port)

    def _wan_shape(self, port: WanPort) -> PortShape:
        return wan_port_shape(self.plan.gateway, port, self.plan.senders)


class MachineNetwork:
    """The network of one machine, which the constructor builds and verifies, and ``stop`` ends.

    It connects those of the hosts in ``host_namespaces`` that the plan has to a gateway by veth pairs. The gateway is a
    node of the machine's ``network``, named ``<datacenter>-gateway``, and its namespace holds everything that is
    created, so that all of it ends with the node. With ``shaped`` false there are no qdiscs, for machines without
    netem: latencies, rates and impairments do not apply. ``private_key`` is this machine's of a plan with a tunnel.
    """

    def __init__(
        self,
        plan: MachinePlan,
        network: HostNetwork,
        marker: str,
        host_namespaces: Mapping[str, str],
        *,
        shaped: bool = True,
        private_key: str = "",
    ) -> None:
        self._plan = plan
        self._shaped = shaped
        with ExitStack() as ending:
            node = network.add(f"{plan.gateway.datacenter}-gateway", marker)
            self._make_host_links(node.namespace, host_namespaces)
            if plan.tunnel_address:
                ending.callback(WireGuardTunnel(plan, node.namespace, marker, private_key).close)
            self._programmer = _MachineProgrammer(plan, node.namespace)
            ending.callback(self._programmer.close)
            if shaped:
                self._programmer.program()
            else:
                self._programmer.connect()
            self._ending = ending.pop_all()
        self.facts = SubstrateFacts("kernel" if shaped else UNSHAPED, os.uname().release)

    def _make_host_links(self, namespace: str, host_namespaces: Mapping[str, str]) -> None:
        netlink, mtu = open_netlink(namespace), self._plan.mtu_bytes
        try:
            for port in self._plan.host_ports:
                with opened(host_namespaces[port.host]) as host_namespace:
                    peer = {"ifname": HOST_INTERFACE, "mtu": mtu, "net_ns_fd": host_namespace}
                    netlink.link("add", ifname=host_interface(port.host_index), kind="veth", mtu=mtu, peer=peer)
        finally:
            netlink.close()

    def settle(self, trim_ns: int) -> None:
        """Set the WAN links' configured impairments, and delays ``trim_ns`` below the configured ones."""
        if self._shaped:
            self._programmer.settle(trim_ns)

    def courses(self) -> KernelCourses:
        """Return what changes this machine's ports of links that change, once they are settled."""
        return self._courses

    @cached_property
    def _courses(self) -> KernelCourses:
        courses = KernelCourses(self._programmer.changing())
        self._ending.callback(courses.close)
        return courses

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel, by ``machine interface``."""
        return self._programmer.read_qdiscs() if self._shaped else {}

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port and of the machine's card, by ``machine interface``."""
        return self._programmer.read_offloads()

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port, which count the hosts that send through it as sources only."""
        return self._programmer.read_counters() if self._shaped else []

    def stop(self) -> None:
        """Close the netlink sockets and end the tunnel; the gateway and its devices end with its node."""
        self._ending.close()
