"""Run the processes that serve prefill beside a trial's ranks: start them before, end them after, leave none behind."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.emulation.serving.serving_plans import ServingProcess
from testbed.hosts.host_process import HostProcess, wait_for_any
from testbed.testbed import Testbed

_GRACE_S = 15.0
"""Time for a process to write its records, and to leave torch, on few cores; after that it is killed."""


@contextmanager
def serving(testbed: Testbed, processes: Sequence[ServingProcess], folder: Path) -> Iterator[list[str]]:
    """Run the processes for as long as the block lasts; ``folder`` receives their plans and their output.

    Training depends on none of them. The list is filled when the block has ended: one line for each that failed.
    """
    started: list[HostProcess] = []
    faults: list[str] = []
    try:
        for number, process in enumerate(processes):
            path = folder / f"serving-{number}.json"
            process.plan.write(path)
            with _words(folder, number).open("wb") as words:
                argv, words_to = [str(path)], words.fileno()
                started.append(testbed.start_module(process.host, process.program, argv, words_to, gpu=process.gpu))
        yield faults
        for running in started:
            running.terminate()
        deadline = time.monotonic() + _GRACE_S
        while any(running.poll() is None for running in started) and (left_s := deadline - time.monotonic()) > 0:
            wait_for_any(started, left_s)
        faults += [
            f"{process.name} {_fate(running.returncode, _words(folder, number))}"
            for number, (process, running) in enumerate(zip(processes, started, strict=True))
            if running.returncode != 0
        ]
    finally:
        for running in started:
            running.kill()
            running.wait()


def _fate(status: int | None, words: Path) -> str:
    said = words.read_text(errors="replace").strip().splitlines()
    last = f": {said[-1]}" if said else ""
    return f"did not end when it was told to{last}" if status is None else f"ended with status {status}{last}"


def _words(folder: Path, number: int) -> Path:
    return folder / f"serving-{number}.words"
