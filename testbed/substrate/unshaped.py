"""Run gateways that delay, lose and limit nothing: hosts reach each other where there is no netem, and no WAN."""

import os
from typing import Any

from testbed.kernel.gateway_programming import GatewayProgrammer
from testbed.kernel.link_counters import PortCounters
from testbed.kernel.missing import MissingError
from testbed.kernel.namespace import anonymous_namespace
from testbed.substrate.host_kernel import HostKernel
from testbed.substrate.probe import Offer
from testbed.substrate.substrate import SubstrateFacts

UNSHAPED = "unshaped"
_INSTALL = "run as root; a container needs the capabilities SYS_ADMIN and NET_ADMIN"


class UnshapedKernel(HostKernel):
    """Run the gateways of ``HostKernel`` without a qdisc.

    No netem is wanted, and none of the topology's figures holds.
    """

    def _program(self, programmer: GatewayProgrammer) -> SubstrateFacts:
        programmer.connect()
        return SubstrateFacts(UNSHAPED, os.uname().release)

    def settle(self, trim_ns: int) -> None:
        """Do nothing: there is no delay to take anything off."""

    def read_qdiscs(self) -> dict[str, Any]:
        """Return nothing: no port has a qdisc."""
        return {}

    def read_counters(self) -> list[PortCounters]:
        """Return nothing: only qdiscs count."""
        return []


def unshaped_offer() -> Offer:
    """Return the offer of hosts without a WAN. Raises MissingError where not even namespaces may be made."""
    try:
        os.close(anonymous_namespace())
    except OSError as fault:
        raise MissingError(f"network namespaces: {fault.strerror or fault} ({_INSTALL})") from None
    return Offer(UNSHAPED, True, "hosts without a WAN were asked for")
