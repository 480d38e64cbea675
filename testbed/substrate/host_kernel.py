"""Run gateways in network namespaces of the machine's own kernel."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from wanbed.testbed.kernel.changes.course_run import KernelCourses
from wanbed.testbed.kernel.gateway_programming import GatewayProgrammer, host_interface
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.namespace import open_netlink, opened
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.network.host_interface import HOST_INTERFACE
from wanbed.testbed.substrate.changing_links import ChangingLinks
from wanbed.testbed.substrate.substrate import SubstrateFacts


class GatewayNode(Protocol):
    """A node that holds a gateway."""

    @property
    def namespace(self) -> str:
        """Path of its network namespace."""


class GatewayNodes(Protocol):
    """A factory of nodes for gateways."""

    def add(self, name: str, marker: str) -> GatewayNode:
        """Create a node."""


class HostKernel:
    """Run each gateway as a node of the testbed's network, named ``<datacenter>-gateway``."""

    def __init__(self, plan: GatewayPlan, network: GatewayNodes, marker: str) -> None:
        self._plan = plan
        self._network = network
        self._marker = marker
        self._programmer: GatewayProgrammer | None = None
        self._courses: KernelCourses | None = None

    def start(self, host_namespaces: Mapping[str, str]) -> SubstrateFacts:
        """Build and verify the gateways, and connect every host to its gateway by a veth pair."""
        namespaces = {}
        for gateway in self._plan.gateways:
            node = self._network.add(f"{gateway.datacenter}-gateway", self._marker)
            namespaces[gateway.datacenter] = node.namespace
            netlink = open_netlink(node.namespace)
            try:
                for port in gateway.host_ports:
                    with opened(host_namespaces[port.host]) as host_namespace:
                        peer = {"ifname": HOST_INTERFACE, "net_ns_fd": host_namespace}
                        netlink.link("add", ifname=host_interface(port.host_index), kind="veth", peer=peer)
            finally:
                netlink.close()
        self._programmer = GatewayProgrammer(self._plan, namespaces)
        return self._program(self._programmer)

    def _program(self, programmer: GatewayProgrammer) -> SubstrateFacts:
        programmer.program()
        return SubstrateFacts("kernel", os.uname().release)

    def settle(self, trim_ns: int) -> None:
        """Set the WAN links' configured impairments, and delays ``trim_ns`` below the configured ones."""
        assert self._programmer is not None
        self._programmer.settle(trim_ns)

    def changing(self) -> ChangingLinks | None:
        """Return what changes ports whose links have a course, once they are settled."""
        assert self._programmer is not None
        if self._courses is None:
            self._courses = KernelCourses(self._programmer.changing())
        return self._courses

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel."""
        assert self._programmer is not None
        return self._programmer.read_qdiscs()

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port."""
        assert self._programmer is not None
        return self._programmer.read_offloads()

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port."""
        assert self._programmer is not None
        return self._programmer.read_counters()

    def cpu_time_s(self) -> float | None:
        """Return None: this kernel's network processing cannot be separated from the machine's other work."""
        return None

    def stop(self) -> None:
        """Close the netlink sockets; the gateways' nodes end with the network."""
        if self._courses is not None:
            self._courses.close()
        if self._programmer is not None:
            self._programmer.close()
