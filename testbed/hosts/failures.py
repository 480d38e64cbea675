"""Define how hosts and ranks of a testbed fail, and let those of this machine."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from wanbed.testbed.hosts.host_attachment import HostEnd, connect_again, cut_off
from wanbed.testbed.network.gateway_plan import GatewayPlan


class Killable(Protocol):
    """The processes of ranks, by their number."""

    def kill(self, number: int) -> None:
        """Send SIGKILL to a process, if it still runs."""

    def pid(self, number: int) -> int:
        """Return the PID of a process; of one on another machine its number there."""


class Applied(NamedTuple):
    """The moment of a failure, by CLOCK_MONOTONIC of this machine, and a host of the machine whose clock timed it.

    That is None for this machine's.
    """

    time_ns: int
    timed_by: str | None


class Failures(Protocol):
    """Let hosts and ranks fail."""

    @property
    def lead_ns(self) -> int:
        """The time from when a failure has to be asked for to its moment."""

    def fail(self, hosts: Collection[str], ranks: Mapping[int, str], processes: Killable | None, at_ns: int) -> Applied:
        """Cut hosts off, then kill ``ranks``, which have their hosts, at a moment or now if it has passed."""

    def connect_again(self, hosts: Collection[str]) -> None:
        """Connect hosts that were cut off."""


@dataclass(frozen=True)
class FailuresHere:
    """Failures of hosts on this machine.

    ``namespace`` returns the path of a host's network namespace. ``stays_up`` is as for ``HostEnd``.
    """

    plan: GatewayPlan
    namespace: Callable[[str], str]
    stays_up: bool
    lead_ns: int = 0

    def fail(self, hosts: Collection[str], ranks: Mapping[int, str], processes: Killable | None, at_ns: int) -> Applied:
        """Cut hosts off, then kill ranks. ``at_ns`` is now: nothing has to be sent ahead."""
        applied_ns = time.monotonic_ns()
        # First of all, so that the kernel of a host that fails tells nobody of its processes' end.
        cut_off(self._end(host) for host in hosts)
        if processes is not None:
            for rank in ranks:
                processes.kill(rank)
        return Applied(applied_ns, None)

    def connect_again(self, hosts: Collection[str]) -> None:
        """Take the hosts' interfaces up."""
        connect_again(self._end(host) for host in hosts)

    def _end(self, host: str) -> HostEnd:
        return HostEnd.of(self.plan, host, self.namespace(host), stays_up=self.stays_up)
