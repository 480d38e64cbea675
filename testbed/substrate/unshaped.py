"""Run gateways without qdiscs, for hosts without a WAN on machines that may lack netem."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wanbed.testbed.kernel.gateway_programming import GatewayProgrammer
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.substrate.host_kernel import GatewayNodes, HostKernel, connected_programmer
from wanbed.testbed.substrate.offer import Offer
from wanbed.testbed.substrate.probe import hosts_refused
from wanbed.testbed.substrate.substrate import SubstrateFacts

UNSHAPED = "unshaped"


@contextmanager
def unshaped_gateways(
    plan: GatewayPlan, network: GatewayNodes, marker: str, host_namespaces: Mapping[str, str]
) -> Iterator["UnshapedKernel"]:
    """Connect every host to its gateway, and the gateways, as ``kernel_gateways`` does but without qdiscs.

    The topology's latencies, rates and impairments do not apply. No netem is needed.
    """
    with connected_programmer(plan, network, marker, host_namespaces) as programmer:
        programmer.connect()
        yield UnshapedKernel(programmer)


class UnshapedKernel(HostKernel):
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
