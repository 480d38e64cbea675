"""Define the interfaces of a host and of a process on it, however either is made, and wait until a process ends."""

import os
import select
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, TypedDict, Unpack, runtime_checkable


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


Stream = int | IO[Any] | None
"""A standard stream of a program, as ``subprocess.Popen`` accepts it."""


class SpawnOptions(TypedDict, total=False):
    """Arguments of ``subprocess.Popen`` for a program on a host.

    ``env`` replaces this process's environment. ``cwd`` is a folder of the host; without it, a program starts in ``/``.
    """

    env: Mapping[str, str] | None
    cwd: str
    stdin: Stream
    stdout: Stream
    stderr: Stream
    text: bool


class RunningHost(Protocol):
    """A place where programs run. They end with the testbed at the latest."""

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on this host."""

    def start_module(
        self, module: str, arguments: list[str], output: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on this host; its return value is the exit status.

        Its standard output and error go to the descriptor ``output``. ``environment`` is added to this process's
        environment. Raise ValueError for an ``environment`` if this kind of host supports none.
        """


class NetworkHost(RunningHost, Protocol):
    """A host with its own network namespace, in which a substrate creates the interface ``eth0``."""

    @property
    def namespace(self) -> str:
        """Path of its network namespace, valid while the host is up."""

    @property
    def shell_pid(self) -> int | None:
        """PID of a process in its namespaces through which other processes join it; None if none may join."""

    def configure(self, etc: Path, address: str, environment: Mapping[str, str]) -> None:
        """Mount the files of the folder ``etc`` on those of the same names in /etc, for this host only.

        ``wanbed.testbed.hosts.host_environment.covered`` says which to mount where.

        If the host has a shell, configure the ``address`` of ``eth0`` and the ``environment`` of programs there too.
        """


class HostNetwork(Protocol):
    """All hosts of one testbed, and its gateways if they are hosts too. Creating it starts nothing."""

    @property
    def module_parent(self) -> int:
        """PID of the process whose children ``start_module`` starts."""

    def add(self, name: str, marker: str) -> NetworkHost:
        """Create a host whose processes have the testbed's identifier, ``marker``. Raise OSError on failure."""

    def stop(self) -> None:
        """End every host. Its namespaces end with their last process."""
