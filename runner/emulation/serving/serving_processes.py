"""Run the processes that serve prefill beside a trial's ranks: start them before, end them after, leave none behind."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from runner.emulation.serving.serving_configs import ServingProcess
from testbed.hosts.process_group import ProcessGroup
from testbed.testbed import Testbed

_GRACE_S = 15.0
"""Time for a process to write its records, and to leave torch, on few cores; after that it is killed."""


@contextmanager
def serving(testbed: Testbed, processes: Sequence[ServingProcess], folder: Path) -> Iterator[list[str]]:
    """Run the processes for as long as the block lasts; ``folder`` receives their plans and their output.

    Training depends on none of them. The list is filled when the block has ended: one line for each that failed.
    """
    faults: list[str] = []
    with ProcessGroup() as group:
        for number, process in enumerate(processes):
            path = folder / f"serving-{number}.json"
            process.plan.write(path)
            start = partial(testbed.start_module, process.host, process.program, [str(path)], gpu=process.gpu)
            group.start(start, folder / f"serving-{number}.words")
        yield faults
        group.terminate()
        group.wait_for_all(_GRACE_S)
        faults += [
            f"{process.name} {_fate(status, group.stderr_tail(number))}"
            for number, (process, status) in enumerate(zip(processes, group.statuses(), strict=True))
            if status != 0
        ]


def _fate(status: int | None, stderr_tail: str) -> str:
    last = f": {stderr_tail}" if stderr_tail else ""
    return f"did not end when it was told to{last}" if status is None else f"ended with status {status}{last}"
