"""Let ranks on several machines begin with one checkpoint, of which each machine has written the stages of its hosts.

The hosts of one machine share its disk, which outlives them. On a rack the driver makes up for the disk that machines
do not share: before training begins again, all of them have the files of the checkpoint that it begins with.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wanbed.testbed.rack.machine_handle import MachineLostError
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.checkpoints import last_restart, stage_file

_ALL = "after-*/stage-*"


def bring_together(testbed: RunningTestbed, folder: Path, stages: int, done: int, every: int) -> None:
    """Copy the last complete checkpoint below ``folder`` here and to every machine, if any is on another machine.

    ``done``, ``every`` and ``stages`` are as for ``last_restart`` and ``checkpoint_files``.
    """
    shared = testbed.shared(folder)
    there = shared.names(_ALL)

    def names(number: int) -> list[str]:
        return [str(stage_file(folder, number, stage).relative_to(folder)) for stage in range(stages)]

    if number := last_restart(done, every, lambda each: there.issuperset(names(each))):
        shared.spread(names(number))


@contextmanager
def without_left_checkpoints(testbed: RunningTestbed, folder: Path) -> Iterator[None]:
    """Remove the checkpoints of a trial's attempts elsewhere when the block ends: the next trial has its own."""
    try:
        yield
    finally:
        # A machine that has gone has none.
        with suppress(MachineLostError):
            testbed.shared(folder).remove(f"attempt-*/{_ALL}")
