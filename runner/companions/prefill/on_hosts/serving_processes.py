"""Run the processes of a prefill service beside a trial's ranks: start them before, and end all of them after."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from wanbed.runner.companions.prefill.on_hosts.serving_configs import ServingConfigs
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.running_testbed import RunningTestbed

_GRACE_S = 15.0
"""Seconds for a process to write its records and to unload torch on few cores. After that it is killed."""


@contextmanager
def serving(testbed: RunningTestbed, configs: ServingConfigs | None, folder: Path) -> Iterator[list[str]]:
    """Run a service's processes inside the block. ``folder`` receives their configurations and what they leave.

    None runs nothing. Training does not depend on them. The yielded list is filled at the end of the block, with a line
    for each process that failed.
    """
    faults: list[str] = []
    processes = () if configs is None else configs.processes
    with ProcessGroup() as group:
        for number, process in enumerate(processes):
            path = folder / f"serving-{number}.json"
            process.config.write(path)
            start = partial(testbed.start_module, process.host, process.program, [str(path)], gpu=process.gpu)
            group.start(start, folder / f"serving-{number}.words")
        yield faults
        group.terminate()
        group.wait_for_all(_GRACE_S)
        faults += [
            f"{process.name} {_failure(status, group.stderr_tail(number))}"
            for number, (process, status) in enumerate(zip(processes, group.statuses(), strict=True))
            if status != 0
        ]
    if configs is not None:
        testbed.mirror(folder).take([path.name for path in configs.written])


def _failure(status: int | None, stderr_tail: str) -> str:
    last = f": {stderr_tail}" if stderr_tail else ""
    return f"did not end when terminated{last}" if status is None else f"ended with status {status}{last}"
