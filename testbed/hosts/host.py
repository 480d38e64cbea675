"""Define the interfaces of a host: for running programs, and for connecting it to an emulated network."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol, TypedDict, Unpack

from wanbed.testbed.hosts.host_process import HostProcess

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

        ``wanbed.testbed.hosts.host_files.covered`` says which to mount where.

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
