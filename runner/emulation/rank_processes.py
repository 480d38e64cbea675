"""Run the processes of one trial's ranks: start all, let faults hit them, wait for them, and leave none behind.

Faults are real: processes are killed, and interfaces go down.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.emulation.rank_configs import peer_timeout_s
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.failures import Failures, Killable
from wanbed.testbed.hosts.process_group import ProcessGroup, Start
from wanbed.testbed.hosts.start_gate import Gate
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.start_gate import PIPES


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


RANK = "wanbed.workloads.rank"
"""The module that every rank of ours runs."""

_LOOK_S, _LOOK_VIRTUAL_S = 0.05, 1.0
"""The time between two calls of ``meanwhile``; in virtual time there is no machine to watch, and every look costs."""

_GRACE_S = 4.0
"""Time for ranks to report why they end, after the time in which they notice a lost peer; then they are ended."""


class RankPlan(Protocol):
    """The plan of a rank, which it gets as a file, and where it runs."""

    @property
    def rank(self) -> int:
        """The rank's number."""

    @property
    def host(self) -> str:
        """The host that the rank runs on."""

    @property
    def gpu(self) -> int:
        """The GPU of that host that the rank computes on, counted from 0."""

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""


@dataclass(frozen=True)
class RankEnd:
    """The end of a rank in a trial that failed.

    ``ended_ns`` is when, by CLOCK_MONOTONIC; None if it had noticed nothing and was ended. ``line`` is the last one
    that it printed, "" for none.
    """

    rank: int
    status: int | None
    ended_ns: int | None
    line: str


class RanksFailedError(TrialError):
    """Raised if a rank failed. The message is one line: the first one that failed, and its own words."""

    def __init__(self, cause: str, ends: Sequence[RankEnd]) -> None:
        super().__init__(cause)
        self.ends = tuple(ends)


@dataclass(frozen=True)
class RankFaults:
    """Faults that hit ranks while they run, and how the others go on.

    Of the ranks in ``can_lose`` those that ``injector`` has hit may fail. ``successor`` returns the plan of a rank that
    comes back, ``has_joined`` whether it has joined the others: once these have all ended, one that has not is ended
    too.
    """

    injector: FaultInjector
    can_lose: Collection[int]
    successor: Callable[[int], RankPlan]
    has_joined: Callable[[int], bool]

    def may_fail(self, rank: int) -> bool:
        """Return whether the others go on if that rank fails now."""
        return rank in self.can_lose and self.injector.has_hit(rank)


def run_ranks(
    testbed: RunningTestbed,
    program: str,
    plans: Sequence[RankPlan],
    folder: Path,
    meanwhile: Callable[[], None],
    *,
    gate: Gate | None = None,
    faults: RankFaults | None = None,
) -> None:
    """Run the module ``program`` for every plan on its host until all have ended well.

    ``folder`` receives the plans and the ranks' output; ``meanwhile`` is called several times a second, in virtual
    time once. ``gate`` is opened when all have come to it, or one has failed; ``faults`` begin when it is opened.
    Raises RanksFailedError with the first rank that failed, and how every rank has ended.
    """
    with ProcessGroup() as ranks:
        hit = None if faults is None else _HitRanks(testbed, program, ranks, folder, faults)
        if hit is not None:
            hit.faults.injector.attach(hit, {plan.rank: plan.host for plan in plans})

        def look() -> None:
            if gate is not None and not gate.is_open:
                gate.look()
            if hit is not None:
                if gate is None or gate.is_open:
                    hit.faults.injector.begin(None if gate is None else gate.opened_ns)
                hit.faults.injector.look()
                hit.end_too_late()

        def pause(most_s: float = _LOOK_VIRTUAL_S if in_virtual_time() else _LOOK_S) -> None:
            testbed.check()
            meanwhile()
            closed_gate = None if gate is None or gate.is_open else gate
            wait_s = most_s if faults is None else faults.injector.wait_s(most_s)
            ranks.wait_for_any(wait_s, or_readable=closed_gate)
            look()

        for plan in plans:
            path = folder / f"rank-{plan.rank}.json"
            ranks.start(_start(testbed, program, plan, path), path.with_suffix(".words"))
        # All may have come while the last one was started.
        look()
        failed = ranks.first_failure(pause, lambda number: faults is not None and faults.may_fail(number))
        if failed is None:
            return
        if gate is not None:
            gate.open()
        deadline_s = time.monotonic() + peer_timeout_s(testbed.topology) + _GRACE_S
        while None in ranks.statuses() and (left_s := deadline_s - time.monotonic()) > 0:
            pause(left_s)
        testbed.check()
        ends = [
            RankEnd(plan.rank, status, ranks.ended_ns(number), ranks.stderr_tail(number))
            for number, (plan, status) in enumerate(zip(plans, ranks.statuses(), strict=True))
        ]
        first, status = plans[failed], ends[failed].status
        silent = f"rank {first.rank} on {first.host} ended with status {status} and without a word"
        raise RanksFailedError(ends[failed].line or silent, ends)


def train_ranks(
    trial: RunningTrial,
    program: str,
    plans: Sequence[RankPlan],
    begin: Callable[[], None],
    look: Callable[[], None],
) -> Ended:
    """Run the module ``program`` for every plan, and let all begin together. Return what they have left.

    ``begin`` is called at the moment when they begin, ``look`` several times a second. Raises what ``run_ranks`` does.
    """
    testbed, setting = trial.testbed, trial.setting
    with testbed.gate(setting.start_gate, [plan.host for plan in plans], PIPES, begin=begin) as gate:
        run_ranks(testbed, program, plans, setting.folder, look, gate=gate)
    return Ended(logs_of_ranks(trial), setting)


def logs_of_ranks(trial: RunningTrial) -> list[SpanLogContents]:
    """Return what each rank of the variant has logged."""
    return [read_span_log(trial.setting.span_log(rank)) for rank in range(len(trial.variant.placement.places))]


def _start(testbed: RunningTestbed, program: str, plan: RankPlan, path: Path) -> Start:
    """Write the plan of a rank, and return what starts the rank."""
    plan.write(path)
    return partial(testbed.start_module, plan.host, program, [str(path)], gpu=plan.gpu)


@dataclass
class _HitRanks:
    """The ranks of a trial that faults kill and start again."""

    testbed: RunningTestbed
    program: str
    processes: ProcessGroup
    folder: Path
    faults: RankFaults
    _returned: list[int] = field(default_factory=list)

    def kill(self, number: int) -> None:
        """Send SIGKILL to a rank, if it still runs."""
        self.processes.kill(number)

    def pid(self, number: int) -> int:
        """Return the PID of a rank; of one on another machine its number there."""
        return self.processes.pid(number)

    def start_again(self, number: int) -> None:
        """Start the successor of a rank."""
        plan = self.faults.successor(number)
        self._returned.append(number)
        path = self.folder / f"rank-{number}.back-{len(self._returned)}.json"
        start = _start(self.testbed, self.program, plan, path)
        self.processes.start_again(number, start, path.with_suffix(".words"))

    def end_too_late(self) -> None:
        """Kill the ranks that have come back and not joined, if all others have ended: nobody is left to join.

        They would call until the limit of their rendezvous, and the trial would last as long.
        """
        if not self._returned:
            return
        running = {number for number, status in enumerate(self.processes.statuses()) if status is None}
        if running.issubset(self._returned):
            for number in running:
                if not self.faults.has_joined(number):
                    self.kill(number)
