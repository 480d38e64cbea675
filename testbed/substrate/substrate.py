"""Define a substrate: it carries the gateways of one testbed, between host namespaces that exist already."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.kernel.link_counters import PortCounters


class SubstrateError(Exception):
    """A substrate could not be brought up, or stopped answering; the message is one line with the cause."""


@dataclass(frozen=True)
class SubstrateFacts:
    """The facts about what carries the qdiscs: ``name`` is ``kernel`` or ``guest``, ``kernel`` its release.

    ``trim_ns`` is what was taken off the delay of every WAN link, because the idle path adds as much by itself.
    """

    name: str
    kernel: str
    trim_ns: int = 0


class Substrate(Protocol):
    """One testbed's gateways."""

    def start(self, host_namespaces: Mapping[str, str]) -> SubstrateFacts:
        """Build and verify the gateways, and leave an interface ``eth0`` in every host's namespace (by host name).

        Raises SubstrateError or ReadBackError; whatever was made by then goes with ``stop``.
        """

    def settle(self, trim_ns: int) -> None:
        """Complete the WAN links, which come up unimpaired: set impairments, and take ``trim_ns`` off the delay.

        The path itself adds as much. Raises SubstrateError and ReadBackError.
        """

    def read_qdiscs(self) -> dict[str, Any]:
        """Return what the kernel holds on every port now, by ``datacenter interface``. Raises SubstrateError."""

    def read_offloads(self) -> dict[str, Any]:
        """Return sizes and offloads of every port now, by ``datacenter interface``. Raises SubstrateError."""

    def read_counters(self) -> list[PortCounters]:
        """Return the counters of every WAN port, as of now. Raises SubstrateError."""

    def cpu_time_s(self) -> float | None:
        """Return the CPU seconds of carrying the network so far, on one core.

        None where they cannot be separated from others.
        """

    def stop(self) -> None:
        """Remove everything that ``start`` made, whether it succeeded or not."""
