"""Let hosts, ranks and gateways fail when they are due: real processes are killed, real interfaces go down."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.testbed.hosts.failures import Failures, Killable
from wanbed.testbed.running_testbed import RunningTestbed


class Restartable(Killable, Protocol):
    """The processes of ranks, by their number."""

    def start_again(self, number: int) -> None:
        """Start a rank that joins the training under way, in place of the one that was killed."""


@dataclass(frozen=True)
class InjectedFault:
    """A fault that happened: when by CLOCK_MONOTONIC, and which ranks it ended or cut off; none if none was there.

    ``timed_by`` is a host of the machine that took that time, None for this machine.
    """

    fault: PlannedFault
    due_ns: int
    applied_ns: int
    ranks: tuple[int, ...]
    timed_by: str | None = None


class _Due(NamedTuple):
    """The time at which something is due, the time to begin before it, and the injected fault that comes back.

    ``back`` is None where the next fault is due.
    """

    due_ns: int
    lead_ns: int
    back: int | None


@dataclass
class FaultInjector:
    """The faults of one trial, in order of time. They count from ``begin``, through every attempt of the training.

    What comes back is connected and started again when it is due.

    ``began_ns`` is when the first attempt began, ``attempt_began_ns`` the newest, by CLOCK_MONOTONIC; None before.
    """

    failures: Failures
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

    def begin(self, at_ns: int | None = None) -> None:
        """Note that the newest attempt has begun, at this moment or now. Faults count from the first one on."""
        if self.attempt_began_ns is None:
            self.attempt_began_ns = time.monotonic_ns() if at_ns is None else at_ns
        if self.began_ns is None:
            self.began_ns = self.attempt_began_ns

    def attach(self, ranks: Restartable, hosts: Mapping[int, str]) -> None:
        """Let faults hit these processes, the newest attempt of the training; ``hosts`` has the host of each rank."""
        self._ranks, self._hosts, self.attempt_began_ns = ranks, hosts, None

    def wait_s(self, most_s: float) -> float:
        """Return how long to wait for the next fault, at most ``most_s``."""
        following = self._following()
        if following is None:
            return most_s
        return min(most_s, max(0.0, (following.due_ns - following.lead_ns - time.monotonic_ns()) / 1e9))

    def look(self) -> None:
        """Let everything fail, and come back, that is due."""
        while (each := self._following()) is not None and each.due_ns - each.lead_ns <= time.monotonic_ns():
            if each.back is not None:
                self._bring_back(each.back)
            else:
                self._inject(self.faults[len(self.injected)], each.due_ns)

    def restore(self) -> None:
        """Connect all hosts again that faults have cut off."""
        self.failures.connect_again(sorted(self.lost_hosts))

    def _following(self) -> "_Due | None":
        """Return what is due next: of a return and a failure at one moment the return."""
        if self.began_ns is None:
            return None
        found = [
            _Due(self.began_ns + dilated_ns(each.fault.back_ns, self.dilation), 0, number)
            for number, each in enumerate(self.injected)
            if each.fault.back_ns is not None and number not in self._back
        ]
        for fault in self.faults[len(self.injected) : len(self.injected) + 1]:
            due_ns = self.began_ns + dilated_ns(fault.at_ns, self.dilation)
            found.append(_Due(due_ns, self.failures.lead_ns, None))
        return min(found, key=lambda each: each.due_ns, default=None)

    def _bring_back(self, number: int) -> None:
        injected = self.injected[number]
        self.failures.connect_again(injected.fault.hosts)
        self._back.add(number)
        if self._ranks is not None:
            for rank in injected.ranks:
                self._ranks.start_again(rank)

    def _inject(self, fault: PlannedFault, due_ns: int) -> None:
        hit = {rank: host for rank, host in self._hosts.items() if fault.hits(rank, host)}
        cut = [host for host in fault.hosts if host not in self.lost_hosts]
        killed = {} if fault.kind == "gateway" else hit
        applied_ns, timed_by = self.failures.fail(cut, killed, self._ranks, due_ns)
        self.injected.append(InjectedFault(fault, due_ns, applied_ns, (*hit,), timed_by))


@contextmanager
def injecting(testbed: RunningTestbed, faults: Sequence[PlannedFault], dilation: float) -> Iterator[FaultInjector]:
    """Yield an injector; the network is whole again when the block ends."""
    injector = FaultInjector(testbed.failures, faults, dilation)
    try:
        yield injector
    finally:
        injector.restore()
