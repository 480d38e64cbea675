"""Let hosts, ranks and gateways fail when they are due: real processes are killed, real interfaces go down."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from runner.resolve.dilation import dilated_ns
from runner.resolve.faults.planned_fault import PlannedFault
from testbed.hosts.interface_failure import HostEnd, connect_again, cut_off
from testbed.running_testbed import RunningTestbed
from testbed.substrate.offer import GUEST


class Restartable(Protocol):
    """The processes of ranks, by their number."""

    def kill(self, number: int) -> None:
        """Send SIGKILL to a process, if it still runs."""

    def start_again(self, number: int) -> None:
        """Start a rank that joins the training under way, in place of the one that was killed."""


@dataclass(frozen=True)
class InjectedFault:
    """A fault that happened: when by CLOCK_MONOTONIC, and which ranks it ended or cut off; none if none was there."""

    fault: PlannedFault
    due_ns: int
    applied_ns: int
    ranks: tuple[int, ...]


@dataclass
class FaultInjector:
    """The faults of one trial, in order of time. They count from ``begin``, through every attempt of the training.

    What comes back is connected and started again when it is due.

    ``began_ns`` is when the first attempt began, ``attempt_began_ns`` the newest, by CLOCK_MONOTONIC; None before.
    """

    testbed: RunningTestbed
    faults: Sequence[PlannedFault]
    dilation: float = 1.0
    injected: list[InjectedFault] = field(default_factory=list)
    began_ns: int | None = None
    attempt_began_ns: int | None = None
    _ranks: Restartable | None = None
    _back: set[int] = field(default_factory=set)
    _hosts: Mapping[int, str] = field(default_factory=dict)

    @property
    def lost_hosts(self) -> frozenset[str]:
        """The hosts that are gone by now."""
        lost = (each for number, each in enumerate(self.injected) if number not in self._back)
        return frozenset(host for each in lost for host in each.fault.hosts)

    def has_hit(self, rank: int) -> bool:
        """Return whether a fault has ended that rank or cut it off."""
        return any(rank in each.ranks for each in self.injected)

    def begin(self) -> None:
        """Note that the newest attempt has begun. Faults count from the first one on."""
        if self.attempt_began_ns is None:
            self.attempt_began_ns = time.monotonic_ns()
        if self.began_ns is None:
            self.began_ns = self.attempt_began_ns

    def attach(self, ranks: Restartable, hosts: Mapping[int, str]) -> None:
        """Let faults hit these processes, the newest attempt of the training; ``hosts`` has the host of each rank."""
        self._ranks, self._hosts, self.attempt_began_ns = ranks, hosts, None

    def wait_s(self, most_s: float) -> float:
        """Return how long to wait for the next fault, at most ``most_s``."""
        due_ns = self._next_due_ns()
        return most_s if due_ns is None else min(most_s, max(0.0, (due_ns - time.monotonic_ns()) / 1e9))

    def look(self) -> None:
        """Let everything fail, and come back, that is due."""
        while (due_ns := self._next_due_ns()) is not None and due_ns <= time.monotonic_ns():
            if (number := self._next_back()) is not None and self._back_ns(number) == due_ns:
                self._bring_back(number)
            else:
                self._inject(self.faults[len(self.injected)], due_ns)

    def restore(self) -> None:
        """Connect all hosts again that faults have cut off."""
        connect_again(self._end(host) for host in sorted(self.lost_hosts))

    def _end(self, host: str) -> HostEnd:
        testbed = self.testbed
        return HostEnd.of(testbed.gateway_plan, host, testbed.namespace(host), stays_up=testbed.facts.name == GUEST)

    def _next_due_ns(self) -> int | None:
        if self.began_ns is None:
            return None
        due_ns = [self.began_ns + dilated_ns(fault.at_ns, self.dilation) for fault in self.faults[len(self.injected) :]]
        if (number := self._next_back()) is not None:
            due_ns.append(self._back_ns(number))
        return min(due_ns, default=None)

    def _next_back(self) -> int | None:
        """Return the number of the injected fault that is the next to come back, None if none does."""
        coming = [
            number
            for number, each in enumerate(self.injected)
            if each.fault.back_ns is not None and number not in self._back
        ]
        return min(coming, key=self._back_ns, default=None)

    def _back_ns(self, number: int) -> int:
        back_ns = self.injected[number].fault.back_ns
        assert self.began_ns is not None
        assert back_ns is not None
        return self.began_ns + dilated_ns(back_ns, self.dilation)

    def _bring_back(self, number: int) -> None:
        injected = self.injected[number]
        connect_again(self._end(host) for host in injected.fault.hosts)
        self._back.add(number)
        if self._ranks is not None:
            for rank in injected.ranks:
                self._ranks.start_again(rank)

    def _inject(self, fault: PlannedFault, due_ns: int) -> None:
        applied_ns = time.monotonic_ns()
        # First of all, so that the kernel of a host that fails tells nobody of its processes' end.
        cut_off(self._end(host) for host in fault.hosts if host not in self.lost_hosts)
        hit = tuple(rank for rank, host in self._hosts.items() if fault.hits(rank, host))
        if fault.kind != "gateway" and self._ranks is not None:
            for rank in hit:
                self._ranks.kill(rank)
        self.injected.append(InjectedFault(fault, due_ns, applied_ns, hit))


@contextmanager
def injecting(testbed: RunningTestbed, faults: Sequence[PlannedFault], dilation: float) -> Iterator[FaultInjector]:
    """Yield an injector; the network is whole again when the block ends."""
    injector = FaultInjector(testbed, faults, dilation)
    try:
        yield injector
    finally:
        injector.restore()
