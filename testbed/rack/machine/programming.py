"""Program one machine's gateway over netlink according to its plan, and verify that the kernel has applied it."""

from collections.abc import Iterator
from typing import Any

from wanbed.testbed.kernel.changing_ports import ChangingPorts
from wanbed.testbed.kernel.gateway_programming import (
    GATEWAY_SYSCTLS,
    attach_host_port,
    host_interface,
    link_index,
)
from wanbed.testbed.kernel.link_counters import PortCounters, StatisticsReader, port_counters
from wanbed.testbed.kernel.namespace import open_netlink, write_sysctls
from wanbed.testbed.kernel.offloads import read_offloads
from wanbed.testbed.kernel.port_shape import PortShape, describe, host_port_shape, wan_port_shape
from wanbed.testbed.kernel.qdiscs import ReadBackError, apply_shape, change_netem, read_shape
from wanbed.testbed.network.gateway_plan import WanPort
from wanbed.testbed.rack.machine.links import card_index, make_link, planned_state, read_state
from wanbed.testbed.rack.machine_plan import MachinePlan

OWN_NAMESPACE = "/proc/thread-self/ns/net"
_LOOPBACK_INDEX = 1


class MachineProgrammer:
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
            attach_host_port(self._netlink, self.plan.gateway, port)
        if not self.plan.host_ports:
            # A machine that only forwards has the gateway's address nowhere else.
            self._netlink.addr("add", index=_LOOPBACK_INDEX, address=self.plan.gateway.address, prefixlen=32)
        own = open_netlink(self._namespace if self.plan.tunnel_address else OWN_NAMESPACE)
        try:
            for link in self.plan.links:
                make_link(own, self._netlink, self._namespace, self.plan, link)
            card = card_index(own, self.plan)
        finally:
            own.close()
        for link in self.plan.links:
            configured, held = planned_state(self.plan, link, card), read_state(self._netlink, link.interface)
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
