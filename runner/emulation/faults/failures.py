"""Let hosts and ranks fail where they are: on this machine, or on the machines of a rack."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from wanbed.testbed.hosts.interface_failure import HostEnd, connect_again, cut_off
from wanbed.testbed.rack.failures.rack_failures import RackFailures
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.substrate.offer import GUEST


class Killable(Protocol):
    """The processes of ranks, by their number."""

    def kill(self, number: int) -> None:
        """Send SIGKILL to a process, if it still runs."""

    def pid(self, number: int) -> int:
        """Return the PID of a process; of one on another machine its number there."""


class Applied(NamedTuple):
    """When something failed, by CLOCK_MONOTONIC of this machine, and a host of the machine whose clock timed it.

    That is None for this machine's.
    """

    time_ns: int
    timed_by: str | None


class Failures(Protocol):
    """Let hosts and ranks fail."""

    @property
    def lead_ns(self) -> int:
        """How long before its moment a failure has to be asked for."""

    def fail(self, hosts: Collection[str], ranks: Mapping[int, str], processes: Killable | None, at_ns: int) -> Applied:
        """Cut hosts off, then kill ``ranks``, which have their hosts, at a moment or now if it has passed."""

    def connect_again(self, hosts: Collection[str]) -> None:
        """Connect hosts that were cut off."""


def failures_of(testbed: RunningTestbed) -> Failures:
    """Return what lets hosts and ranks of a testbed fail."""
    return FailuresHere(testbed) if testbed.rack is None else FailuresOnRack(testbed.rack.failures)


@dataclass(frozen=True)
class FailuresHere:
    """Failures of hosts on this machine."""

    testbed: RunningTestbed
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
        testbed = self.testbed
        return HostEnd.of(testbed.gateway_plan, host, testbed.namespace(host), stays_up=testbed.facts.name == GUEST)


@dataclass(frozen=True)
class FailuresOnRack:
    """Failures of hosts on machines of a rack, whose agents let them fail at the moment."""

    machines: RackFailures

    @property
    def lead_ns(self) -> int:
        """How long before its moment a failure has to be sent."""
        return self.machines.lead_ns

    def fail(self, hosts: Collection[str], ranks: Mapping[int, str], processes: Killable | None, at_ns: int) -> Applied:
        """Send the failure to the machines of the hosts and ranks. A rank that has no process any more is passed by."""
        numbers = [] if processes is None else [(host, processes.pid(rank)) for rank, host in ranks.items()]
        moment = self.machines.fail(hosts, numbers, at_ns)
        return Applied(time.monotonic_ns(), None) if moment is None else Applied(moment.time_ns, moment.host)

    def connect_again(self, hosts: Collection[str]) -> None:
        """Have the machines take the hosts' interfaces up."""
        self.machines.connect_again(hosts)
