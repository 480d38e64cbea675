"""Define a process on a host, however it was started, and wait until one of several processes ends."""

import os
import select
import subprocess
from collections.abc import Iterable
from typing import Protocol, runtime_checkable


class HostProcess(Protocol):
    """A process on a host: the interface of ``subprocess.Popen``, and a descriptor that signals its end."""

    @property
    def pid(self) -> int:
        """The process's PID."""

    @property
    def returncode(self) -> int | None:
        """The exit status once it has been read, negative for a signal; None before."""

    def fileno(self) -> int:
        """Return a descriptor that is readable once the process has ended; call only before ``returncode`` is known."""

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raise subprocess.TimeoutExpired after ``timeout`` seconds."""

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""

    def terminate(self) -> None:
        """Send SIGTERM, if it still runs."""


@runtime_checkable
class TimedProcess(Protocol):
    """A process on another machine, whose end was timed there."""

    @property
    def ended_ns(self) -> int | None:
        """The moment of its end, by CLOCK_MONOTONIC of this machine as far as that is known; None if nobody knows."""


class Program(subprocess.Popen[bytes]):
    """A program that this process has started."""

    _pidfd: int | None = None

    def fileno(self) -> int:
        """Return a descriptor that is readable once the program has ended; call only before ``returncode`` is known."""
        if self._pidfd is None:
            self._pidfd = os.pidfd_open(self.pid)
        return self._pidfd

    def __del__(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
        super().__del__()


class Readable(Protocol):
    """An object with a file descriptor that becomes readable."""

    def fileno(self) -> int:
        """Return its descriptor."""


def wait_for_any(processes: Iterable[HostProcess], timeout_s: float, *, or_readable: Readable | None = None) -> None:
    """Sleep until a running process ends or ``or_readable`` is readable, at most for ``timeout_s``.

    Return at once if no process runs.
    """
    ends = select.poll()
    running = [process for process in processes if process.returncode is None]
    for process in running:
        ends.register(process, select.POLLIN)
    if or_readable is not None:
        ends.register(or_readable, select.POLLIN)
    if running:
        ends.poll(timeout_s * 1000)
