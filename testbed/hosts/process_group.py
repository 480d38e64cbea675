"""Run a group of processes on hosts, and leave none of them behind."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from wanbed.testbed.hosts.host import HostProcess, Readable, TimedProcess, wait_for_any

Start = Callable[[int], HostProcess]
"""A function that starts a process whose standard output and error go to the given descriptor."""


class ProcessGroup(AbstractContextManager["ProcessGroup"]):
    """Processes, numbered from 0 in the order of their start. The end of the ``with`` block kills running ones."""

    def __init__(self) -> None:
        self._processes: list[HostProcess] = []
        self._outputs: list[Path] = []
        self._ended_ns: dict[int, int] = {}

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def start(self, start: Start, output: Path) -> None:
        """Start one more process; its standard output and error go to the file ``output``."""
        with output.open("wb") as file:
            self._processes.append(start(file.fileno()))
        self._outputs.append(output)

    def start_again(self, number: int, start: Start, output: Path) -> None:
        """Start a process in place of one that has ended, under its number. If that still runs, it is killed."""
        self._processes[number].kill()
        self._processes[number].wait()
        with output.open("wb") as file:
            self._processes[number] = start(file.fileno())
        self._outputs[number] = output
        self._ended_ns.pop(number, None)

    def statuses(self) -> list[int | None]:
        """Return the exit status of each process, negative for a signal; None while it runs."""
        found = [process.poll() for process in self._processes]
        for number, status in enumerate(found):
            if status is not None and number not in self._ended_ns:
                self._ended_ns[number] = _ended_ns(self._processes[number])
        return found

    def ended_ns(self, number: int) -> int | None:
        """Return when a process was first seen to have ended, by CLOCK_MONOTONIC; None while it runs.

        Of a process on another machine it is when it ended there.
        """
        return self._ended_ns.get(number)

    def pid(self, number: int) -> int:
        """Return the PID of a process; of one on another machine its number there."""
        return self._processes[number].pid

    def kill(self, number: int) -> None:
        """Send SIGKILL to a process, if it still runs."""
        self._processes[number].kill()

    def first_failure(
        self, pause: Callable[[], None], is_expected: Callable[[int], bool] = lambda number: False
    ) -> int | None:
        """Wait until a process fails, and return its number; return None if all have ended with status 0.

        ``pause`` is called between two polls and should sleep. A process may fail that ``is_expected`` to.
        """
        while True:
            statuses = self.statuses()
            failing = (number for number, status in enumerate(statuses) if status not in {None, 0})
            failed = next((number for number in failing if not is_expected(number)), None)
            if failed is not None or None not in statuses:
                return failed
            pause()

    def wait_for_any(self, timeout_s: float, *, or_readable: Readable | None = None) -> None:
        """Sleep until a running process ends or ``or_readable`` is readable, at most for ``timeout_s``."""
        wait_for_any(self._processes, timeout_s, or_readable=or_readable)

    def wait_for_all(self, timeout_s: float) -> bool:
        """Wait until all processes have ended, at most for ``timeout_s``; return whether they have."""
        deadline = time.monotonic() + timeout_s
        while None in self.statuses():
            if (left_s := deadline - time.monotonic()) <= 0:
                return False
            self.wait_for_any(left_s)
        return True

    def terminate(self) -> None:
        """Send SIGTERM to all running processes."""
        for process in self._processes:
            process.terminate()

    def stderr_tail(self, number: int) -> str:
        """Return the last line of a process's output, empty if there is none."""
        lines = self._outputs[number].read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def _ended_ns(process: HostProcess) -> int:
    timed_ns = process.ended_ns if isinstance(process, TimedProcess) else None
    return time.monotonic_ns() if timed_ns is None else timed_ns
