"""Carry one machine's part of an emulated network: its gateway, its hosts' ports, and its devices to other machines."""

import os
from collections.abc import Mapping
from typing import Any

from wanbed.testbed.hosts.host import HostNetwork
from wanbed.testbed.kernel.changes.course_run import KernelCourses
from wanbed.testbed.kernel.gateway_programming import host_interface
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.namespace import open_netlink, opened
from wanbed.testbed.network.host_interface import HOST_INTERFACE
from wanbed.testbed.rack.machine_plan import MachinePlan
from wanbed.testbed.rack.machine_programming import MachineProgrammer
from wanbed.testbed.rack.wireguard_tunnel import WireGuardTunnel
from wanbed.testbed.substrate.substrate import SubstrateFacts
from wanbed.testbed.substrate.unshaped import UNSHAPED


class MachineNetwork:
    """The substrate of one machine. Its gateway is a node of the machine's network, named ``<datacenter>-gateway``.

    The gateway's namespace holds everything that is created for the network, so that all of it ends with the node. With
    ``shaped`` false there are no qdiscs, for machines without netem: latencies, rates and impairments do not apply.
    ``private_key`` is this machine's of a plan with a tunnel.
    """

    def __init__(
        self, plan: MachinePlan, network: HostNetwork, marker: str, *, shaped: bool = True, private_key: str = ""
    ) -> None:
        self._plan = plan
        self._network = network
        self._marker = marker
        self._shaped = shaped
        self._private_key = private_key
        self._tunnel: WireGuardTunnel | None = None
        self._programmer: MachineProgrammer | None = None
        self._courses: KernelCourses | None = None

    def start(self, host_namespaces: Mapping[str, str]) -> SubstrateFacts:
        """Build and verify the gateway, and connect this machine's hosts to it by veth pairs.

        Other hosts in ``host_namespaces`` are ignored.
        """
        node = self._network.add(f"{self._plan.gateway.datacenter}-gateway", self._marker)
        self._make_host_links(node.namespace, host_namespaces)
        if self._plan.tunnel_address:
            self._tunnel = WireGuardTunnel(self._plan, node.namespace, self._marker, self._private_key)
        self._programmer = MachineProgrammer(self._plan, node.namespace)
        if self._shaped:
            self._programmer.program()
        else:
            self._programmer.connect()
        return SubstrateFacts("kernel" if self._shaped else UNSHAPED, os.uname().release)

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
            self._running.settle(trim_ns)

    def courses(self) -> KernelCourses:
        """Return what changes this machine's ports of links that change, once they are settled."""
        if self._courses is None:
            self._courses = KernelCourses(self._running.changing())
        return self._courses

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel, by ``machine interface``."""
        return self._running.read_qdiscs() if self._shaped else {}

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port and of the machine's card, by ``machine interface``."""
        return self._running.read_offloads()

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port, which count the hosts that send through it as sources only."""
        return self._running.read_counters() if self._shaped else []

    def cpu_time_s(self) -> float | None:
        """Return None: this kernel's network processing cannot be separated from the machine's other work."""
        return None

    def stop(self) -> None:
        """Close the netlink sockets and end the tunnel; the gateway and its devices end with its node."""
        if self._courses is not None:
            self._courses.close()
            self._courses = None
        if self._programmer is not None:
            self._programmer.close()
            self._programmer = None
        if self._tunnel is not None:
            self._tunnel.close()
            self._tunnel = None

    @property
    def _running(self) -> MachineProgrammer:
        assert self._programmer is not None
        return self._programmer
