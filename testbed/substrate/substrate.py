"""Define a substrate: it runs the gateways of one testbed between existing host namespaces, and changes their links."""

from dataclasses import dataclass
from typing import Any, Protocol

from wanbed.ground.errors import WanbedError
from wanbed.testbed.kernel.course_run import CourseRecord
from wanbed.testbed.kernel.link_counters import PortCounters


class ChangingLinks(Protocol):
    """The WAN links of a testbed that change. Outside ``begin`` to ``end`` each has its first conditions.

    Every method raises SubstrateError or ReadBackError on failure.
    """

    def hold(self, time_ns: int) -> None:
        """Put every link in the conditions that it has at a time since training began, and read them back."""

    def begin(self) -> int:
        """Let every course begin, and return when: about now, on this process's monotonic clock."""

    def end(self) -> CourseRecord:
        """End the courses, put every link in its first conditions, read them back, and return what was changed."""


class SubstrateError(WanbedError):
    """A substrate could not be brought up, or stopped answering; the message is one line with the cause."""


@dataclass(frozen=True)
class GuestFacts:
    """A gateway guest's equipment: the device that connects it to hosts (``tap`` or ``raw veth``), and its nice value.

    ``buffer_bytes`` is the size of the receive buffers of raw sockets, None if there are none or it is unknown.
    """

    device: str
    nice: int
    buffer_bytes: int | None


@dataclass(frozen=True)
class SubstrateFacts:
    """Facts about a running substrate: ``name`` is ``kernel``, ``guest`` or ``unshaped``, ``kernel`` a kernel release.

    ``trim_ns`` is the reduction of every WAN link's delay, which offsets the delay of the idle path itself.
    ``prompt_wakeups`` is whether idle processors stay awake as long as the substrate runs.
    """

    name: str
    kernel: str
    trim_ns: int = 0
    prompt_wakeups: bool = False
    guest: GuestFacts | None = None


class Substrate(Protocol):
    """The gateways of one testbed, which are up: there is an interface ``eth0`` in every host's namespace.

    Each kind of substrate has a context manager that brings it up, and raises SubstrateError or ReadBackError if it
    cannot. After the block nothing of it is left.
    """

    @property
    def facts(self) -> SubstrateFacts:
        """Facts about it, as it was brought up."""

    def settle(self, trim_ns: int) -> None:
        """Complete the WAN links, which start without impairments: set these, and reduce the delays by ``trim_ns``.

        The path itself adds ``trim_ns``. Raise SubstrateError or ReadBackError on failure.
        """

    def changing(self) -> ChangingLinks | None:
        """Return what changes links that have a course, once they are settled; None where nothing changes links."""

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel, by ``datacenter interface``. Raise SubstrateError on failure."""

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port, by ``datacenter interface``. Raise SubstrateError on failure."""

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port. Raise SubstrateError on failure."""

    def cpu_time_s(self) -> float | None:
        """Return the CPU seconds that carrying the network has taken so far, on one core.

        None if they cannot be separated from other CPU time.
        """
