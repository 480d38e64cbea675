"""Define a host: what programs need of it, and what a testbed needs to put it into an emulated network."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol, TypedDict, Unpack

from testbed.hosts.host_process import HostProcess

Stream = int | IO[Any] | None
"""Where a program reads from or writes to: what ``subprocess.Popen`` takes."""


class SpawnOptions(TypedDict, total=False):
    """Arguments of ``subprocess.Popen`` for a program on a host; ``env`` replaces this process's environment."""

    env: Mapping[str, str] | None
    stdin: Stream
    stdout: Stream
    stderr: Stream
    text: bool


class Host(Protocol):
    """A place where programs run. What they are started with ends with the testbed at the latest."""

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on this host."""

    def start_module(
        self, module: str, arguments: list[str], words: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on this host; its return value is the exit status.

        Its standard output and error go to the descriptor ``words``. It has ``environment`` beyond this process's.
        Raises ValueError for an ``environment`` where this kind of host can give it none.
        """


class NetworkHost(Host, Protocol):
    """A host in a network namespace of its own, in which a substrate leaves the interface ``eth0``."""

    @property
    def namespace(self) -> str:
        """Path of its network namespace, for as long as the host is up."""

    @property
    def shell_pid(self) -> int | None:
        """Number of a process in its namespaces through which other processes join it; None where none may join."""

    def configure(self, hosts_file: Path, address: str, environment: Mapping[str, str]) -> None:
        """Make ``hosts_file`` this host's /etc/hosts, for this host alone.

        If it has a shell, that knows the ``address`` of ``eth0``, and what is started there has ``environment`` too.
        """


class HostNetwork(Protocol):
    """All hosts of one testbed, and its gateways where they are hosts too. It is made without starting anything."""

    @property
    def module_parent(self) -> int:
        """Number of the process whose children ``start_module`` makes."""

    def add(self, name: str, marker: str) -> NetworkHost:
        """Make a host whose processes bear the testbed's identifier, ``marker``. Raises OSError."""

    def stop(self) -> None:
        """End every host, and with it its namespaces once no other process holds them."""
