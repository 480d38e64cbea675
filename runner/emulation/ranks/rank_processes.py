"""Run the processes of one trial's ranks: start all, wait for them, and leave none behind."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from runner.emulation.ranks.start_gate import StartGate
from runner.runs.faults import TrialError
from testbed.hosts.host_process import HostProcess, wait_for_any
from testbed.kernel.inside import in_virtual_time
from testbed.testbed import Testbed

_LOOK_S, _LOOK_VIRTUAL_S = 0.05, 1.0
"""The time between two calls of ``meanwhile``; in virtual time there is no machine to watch, and every look costs."""
_GRACE_S = 12.0
"""Time for ranks to notice a lost peer, within 10 s, and report why; after that they are ended."""


class Plan(Protocol):
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


def run_ranks(
    testbed: Testbed,
    program: str,
    plans: Sequence[Plan],
    folder: Path,
    meanwhile: Callable[[], None],
    *,
    gate: StartGate | None = None,
) -> None:
    """Run the module ``program`` for every plan on its host until all have ended well.

    ``folder`` receives the plans and the ranks' output; ``meanwhile`` is called several times a second, in virtual
    time once. ``gate`` is opened when all have come to it, or one has failed. Raises TrialError, one line with the
    first rank that failed and its own words.
    """
    ranks: list[HostProcess] = []
    try:
        for plan in plans:
            path = folder / f"rank-{plan.rank}.json"
            plan.write(path)
            with _words(folder, plan.rank).open("wb") as words:
                words_to = words.fileno()
                ranks.append(testbed.start_module(plan.host, program, [str(path)], words_to, gpu=plan.gpu))
        failed = _first_failure(ranks, meanwhile, gate)
        if failed is not None:
            if gate is not None:
                gate.open()
            _give_time_to_notice(ranks)
            raise TrialError(_obituary(plans[failed], ranks[failed].returncode, folder))
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def _first_failure(ranks: list[HostProcess], meanwhile: Callable[[], None], gate: StartGate | None) -> int | None:
    while True:
        if gate is not None and not gate.is_open:
            gate.look()
        states = [process.poll() for process in ranks]
        for rank, status in enumerate(states):
            if status not in {None, 0}:
                return rank
        if None not in states:
            return None
        meanwhile()
        look_s = _LOOK_VIRTUAL_S if in_virtual_time() else _LOOK_S
        wait_for_any(ranks, look_s, or_readable=None if gate is None or gate.is_open else gate)


def _give_time_to_notice(ranks: list[HostProcess]) -> None:
    deadline = time.monotonic() + _GRACE_S
    while any(process.poll() is None for process in ranks) and (left_s := deadline - time.monotonic()) > 0:
        wait_for_any(ranks, left_s)


def _obituary(plan: Plan, status: int | None, folder: Path) -> str:
    words = _words(folder, plan.rank).read_text(errors="replace").strip().splitlines()
    return words[-1] if words else f"rank {plan.rank} on {plan.host} ended with status {status} and without a word"


def _words(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.words"
