"""Run gateways in network namespaces of the machine's own kernel, with qdiscs, or without for hosts without a WAN."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol

from wanbed.ground.errors import MissingError
from wanbed.testbed.kernel.course_run import KernelCourses
from wanbed.testbed.kernel.gateway_programming import GatewayProgrammer, host_interface
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.namespace import open_netlink, opened
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.substrate.offer import Offer
from wanbed.testbed.substrate.probe import hosts_refused
from wanbed.testbed.substrate.substrate import ChangingLinks, SubstrateFacts


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


UNSHAPED = "unshaped"


@contextmanager
def unshaped_gateways(
    plan: GatewayPlan, network: GatewayNodes, marker: str, host_namespaces: Mapping[str, str]
) -> Iterator["_UnshapedKernel"]:
    """Connect every host to its gateway, and the gateways, as ``kernel_gateways`` does but without qdiscs.

    The topology's latencies, rates and impairments do not apply. No netem is needed.
    """
    with connected_programmer(plan, network, marker, host_namespaces) as programmer:
        programmer.connect()
        yield _UnshapedKernel(programmer)


class _UnshapedKernel(HostKernel):
    """The gateways of ``HostKernel`` without qdiscs."""

    def __init__(self, programmer: GatewayProgrammer) -> None:
        super().__init__(programmer)
        self.facts = SubstrateFacts(UNSHAPED, os.uname().release)

    def settle(self, trim_ns: int) -> None:
        """Do nothing: there is no delay to reduce."""

    def changing(self) -> None:
        """Return None: no link has conditions that could change."""
        return

    def read_qdiscs(self) -> dict[str, Any]:
        """Return nothing: no port has a qdisc."""
        return {}

    def read_counters(self) -> list[PortCounters]:
        """Return nothing: only qdiscs have counters."""
        return []


def unshaped_offer() -> Offer:
    """Return the offer of hosts without a WAN. Raise MissingError if this process may not make hosts."""
    if (refusal := hosts_refused(UNSHAPED)) is not None:
        raise MissingError(f"{refusal.reason} ({refusal.install})")
    return Offer(UNSHAPED, True, "hosts without a WAN were requested")
