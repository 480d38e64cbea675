"""Run gateways without qdiscs, for hosts without a WAN on machines that may lack netem."""

import os
from typing import Any

from wanbed.testbed.kernel.gateway_programming import GatewayProgrammer
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.substrate.host_kernel import HostKernel
from wanbed.testbed.substrate.offer import Offer
from wanbed.testbed.substrate.probe import hosts_refused
from wanbed.testbed.substrate.substrate import SubstrateFacts

UNSHAPED = "unshaped"


class UnshapedKernel(HostKernel):
    """Run the gateways of ``HostKernel`` without qdiscs. The topology's latencies, rates and impairments do not apply.

    No netem is needed.
    """

    def _program(self, programmer: GatewayProgrammer) -> SubstrateFacts:
        programmer.connect()
        return SubstrateFacts(UNSHAPED, os.uname().release)

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
