"""Carry one machine's part of an emulated network: its gateway, its hosts' ports, and its devices to other machines."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Any

from wanbed.testbed.hosts.host import HostNetwork
from wanbed.testbed.kernel.course_run import KernelCourses
from wanbed.testbed.kernel.gateway_programming import host_interface
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.namespace import open_netlink, opened
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.rack.machine.programming import MachineProgrammer
from wanbed.testbed.rack.machine.wireguard_tunnel import WireGuardTunnel
from wanbed.testbed.rack.machine_plan import MachinePlan
from wanbed.testbed.substrate.host_kernel import UNSHAPED
from wanbed.testbed.substrate.substrate import SubstrateFacts


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
            self._programmer = MachineProgrammer(plan, node.namespace)
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
