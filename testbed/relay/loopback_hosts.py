"""Provide hosts without namespaces: plain processes of this user, told apart by their addresses on the loopback."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.host import SpawnOptions
from wanbed.testbed.hosts.host_process import HostProcess, Program

OWN_NAMESPACE = "/proc/self/ns/net"


class LoopbackHost:
    """A host in the machine's own network. Its processes' environment has the testbed's identifier, ``marker``."""

    namespace = OWN_NAMESPACE
    shell_pid = None

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def configure(self, etc: Path, address: str, environment: Mapping[str, str]) -> None:
        """Do nothing: there is no /etc of a host's own, and no shell."""

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program. It is on this host as far as it binds the host's address."""
        popen["env"] = {**(popen.get("env") or os.environ), MARKER: self._marker}
        popen.setdefault("cwd", "/")
        return subprocess.Popen(argv, **popen)

    def start_module(
        self, module: str, arguments: list[str], output: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module in a new Python process."""
        full_environment = {**os.environ, **environment, MARKER: self._marker}
        argv = module_command(module, *arguments)
        return Program(argv, env=full_environment, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output)


class LoopbackNetwork:
    """The hosts of one testbed. They are nothing but their processes, which end with the testbed."""

    @property
    def module_parent(self) -> int:
        """PID of the process that starts the hosts' programs: this one."""
        return os.getpid()

    def add(self, name: str, marker: str) -> LoopbackHost:
        """Create a host."""
        return LoopbackHost(marker)

    def stop(self) -> None:
        """Do nothing."""
