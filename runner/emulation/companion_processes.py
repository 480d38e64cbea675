"""Processes of a companion on hosts: ready at a gate before training, running beside it, ended after it.

``field`` is that of the experiment file which asks for them. It begins each message.
"""

import time
from collections.abc import Sequence

from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.hosts.start_gate import Gate
from wanbed.testbed.running_testbed import RunningTestbed

PATIENCE_S = 60.0
_GRACE_S = 10.0


def await_at_gate(testbed: RunningTestbed, gate: Gate, groups: Sequence[ProcessGroup], field: str) -> None:
    """Wait until all processes have come to their gate. Raise TrialError if one ends, or it takes too long."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        gate.look()
        if gate.is_complete:
            return
        check_running(testbed, groups, field)
        if time.monotonic() >= deadline_s:
            raise TrialError(f"{field}: its processes were not ready within {PATIENCE_S:.0f} s")
        groups[-1].wait_for_any(1.0, or_readable=gate)


def check_running(testbed: RunningTestbed, groups: Sequence[ProcessGroup], field: str) -> None:
    """Raise TrialError if a process has ended: then not what was asked for ran beside training."""
    for group in groups:
        if any(status is not None for status in group.statuses()):
            raise _first_fault(testbed, group, field)


def end(testbed: RunningTestbed, group: ProcessGroup, field: str) -> None:
    """End all processes of a group. Raise TrialError if one does not end well."""
    group.terminate()
    group.wait_for_all(_GRACE_S)
    if any(status != 0 for status in group.statuses()):
        raise _first_fault(testbed, group, field)


def _first_fault(testbed: RunningTestbed, group: ProcessGroup, field: str) -> TrialError:
    """Return an error about the first process of a group that has failed, or else the first that has ended.

    Raise MachineLostError if a machine has gone, and the process with it.
    """
    testbed.check()
    statuses = group.statuses()
    number = next((each for each, status in enumerate(statuses) if status), 0)
    said = group.stderr_tail(number)
    how = "did not end" if statuses[number] is None else f"ended with status {statuses[number]}"
    return TrialError(said or f"{field}: process {number} {how}, and without a word")
