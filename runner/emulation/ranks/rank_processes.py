"""Run the processes of one trial's ranks: start all, wait for them, and leave none behind."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from runner.emulation.ranks.start_gate import Gate
from runner.runs.faults import TrialError
from testbed.hosts.process_group import ProcessGroup
from testbed.kernel.inside import in_virtual_time
from testbed.running_testbed import RunningTestbed

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
    testbed: RunningTestbed,
    program: str,
    plans: Sequence[Plan],
    folder: Path,
    meanwhile: Callable[[], None],
    *,
    gate: Gate | None = None,
) -> None:
    """Run the module ``program`` for every plan on its host until all have ended well.

    ``folder`` receives the plans and the ranks' output; ``meanwhile`` is called several times a second, in virtual
    time once. ``gate`` is opened when all have come to it, or one has failed. Raises TrialError, one line with the
    first rank that failed and its own words.
    """
    with ProcessGroup() as ranks:

        def pause() -> None:
            check_machines(testbed)
            meanwhile()
            look_s = _LOOK_VIRTUAL_S if in_virtual_time() else _LOOK_S
            closed_gate = None if gate is None or gate.is_open else gate
            ranks.wait_for_any(look_s, or_readable=closed_gate)
            if closed_gate is not None:
                closed_gate.look()

        for plan in plans:
            path = folder / f"rank-{plan.rank}.json"
            plan.write(path)
            start = partial(testbed.start_module, plan.host, program, [str(path)], gpu=plan.gpu)
            ranks.start(start, folder / f"rank-{plan.rank}.words")
        # All may have come while the last one was started.
        if gate is not None:
            gate.look()
        failed = ranks.first_failure(pause)
        if failed is not None:
            if gate is not None:
                gate.open()
            ranks.wait_for_all(_GRACE_S)
            check_machines(testbed)
            raise TrialError(_cause(plans[failed], ranks.statuses()[failed], ranks.stderr_tail(failed)))


def check_machines(testbed: RunningTestbed) -> None:
    """Raise MachineLostError if the testbed is over several machines and one has gone."""
    if testbed.rack is not None:
        testbed.rack.check()


def _cause(plan: Plan, status: int | None, stderr_tail: str) -> str:
    return stderr_tail or f"rank {plan.rank} on {plan.host} ended with status {status} and without a word"
