"""Provide hosts without namespaces: plain processes of this user, told apart by their addresses on the loopback.

Each testbed has a part of the loopback's addresses, apart from those of all other users' testbeds.
"""

import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

from wanbed.ground.errors import MissingError
from wanbed.ground.socket_owner import TcpListener, listener_at
from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.host import HostProcess, Program, SpawnOptions
from wanbed.testbed.kernel.tcp import ListeningSockets
from wanbed.testbed.network.addressing import LOOPBACK_SUBNETS, loopback_lock_address, loopback_subnets

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


_LOCK_PORT = 20_000


class LoopbackSubnet:
    """The addresses of one testbed, by their ``number``; free again when this is closed or its process has ended.

    Users do not see each other's records of testbeds. So who listens at a subnet's lock address has it. A subnet where
    another user's program listens is passed over. Raise MissingError if none is free, with who has the first one.
    """

    def __init__(self) -> None:
        with closing(ListeningSockets()) as sockets:
            others = [each for each in sockets.read() if not each.own]
        first: TcpListener | None = None
        for number in range(1, LOOPBACK_SUBNETS + 1):
            held = next((each for each in others if each.address.startswith(loopback_subnets(number))), None)
            lock = None if held else self._lock_of(number)
            if lock is not None:
                self.number = number
                self._lock = lock
                return
            first = first or held or listener_at(loopback_lock_address(number), _LOCK_PORT)
        raise MissingError(
            f"--substrate relay: none of the {LOOPBACK_SUBNETS} parts of the loopback is free: "
            f"{first or 'all are taken'}: end that program, or the testbeds that use them"
        )

    @staticmethod
    def _lock_of(number: int) -> socket.socket | None:
        lock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            lock.bind((loopback_lock_address(number), _LOCK_PORT))
            lock.listen(1)
        except OSError:
            lock.close()
            return None
        return lock

    def close(self) -> None:
        """Give the addresses back."""
        self._lock.close()
