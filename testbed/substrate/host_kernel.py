"""Run gateways in network namespaces of the machine's own kernel."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
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


@contextmanager
def kernel_gateways(
    plan: GatewayPlan, network: GatewayNodes, marker: str, host_namespaces: Mapping[str, str]
) -> Iterator["HostKernel"]:
    """Build and verify the gateways, and connect every host to its gateway by a veth pair.

    After the block the netlink sockets are closed; the gateways' nodes end with the network.
    """
    with connected_programmer(plan, network, marker, host_namespaces) as programmer:
        programmer.program()
        with closing(HostKernel(programmer)) as gateways:
            yield gateways


def connected_programmer(
    plan: GatewayPlan, network: GatewayNodes, marker: str, host_namespaces: Mapping[str, str]
) -> closing[GatewayProgrammer]:
    """Make a node ``<datacenter>-gateway`` for each gateway, and a veth pair to each of its hosts; none is up yet."""
    namespaces = {}
    for gateway in plan.gateways:
        node = network.add(f"{gateway.datacenter}-gateway", marker)
        namespaces[gateway.datacenter] = node.namespace
        with closing(open_netlink(node.namespace)) as netlink:
            for port in gateway.host_ports:
                with opened(host_namespaces[port.host]) as host_namespace:
                    peer = {"ifname": HOST_INTERFACE, "net_ns_fd": host_namespace}
                    netlink.link("add", ifname=host_interface(port.host_index), kind="veth", peer=peer)
    return closing(GatewayProgrammer(plan, namespaces))


class HostKernel:
    """The gateways of one testbed, which are nodes of its network."""

    def __init__(self, programmer: GatewayProgrammer) -> None:
        self._programmer = programmer
        self._courses: KernelCourses | None = None
        self.facts = SubstrateFacts("kernel", os.uname().release)

    def settle(self, trim_ns: int) -> None:
        """Set the WAN links' configured impairments, and delays ``trim_ns`` below the configured ones."""
        self._programmer.settle(trim_ns)

    def changing(self) -> ChangingLinks | None:
        """Return what changes ports whose links have a course, once they are settled."""
        if self._courses is None:
            self._courses = KernelCourses(self._programmer.changing())
        return self._courses

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel."""
        return self._programmer.read_qdiscs()

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port."""
        return self._programmer.read_offloads()

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port."""
        return self._programmer.read_counters()

    def cpu_time_s(self) -> float | None:
        """Return None: this kernel's network processing cannot be separated from the machine's other work."""
        return None

    def close(self) -> None:
        """End the courses."""
        if self._courses is not None:
            self._courses.close()
