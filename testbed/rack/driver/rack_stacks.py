"""Use the TCP of hosts on several machines."""

import socket
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from wanbed.testbed.hosts.ping import PingResult, Spawn, ping
from wanbed.testbed.kernel.tcp import TcpStates
from wanbed.testbed.network.tcp_settings import TcpSettings

_CallAll = Callable[..., list[Any]]
"""Calls a method of every machine at the same time and returns what each returned."""


class RackStacks:
    """The kernels' TCP in hosts' network namespaces on several machines, of which no process has them all."""

    modelled = False
    opens_sockets = False

    def __init__(self, call_all: _CallAll, spawn: Spawn) -> None:
        self._call_all = call_all
        self._spawn = spawn

    def use(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings. Raise MissingError for a congestion control that a kernel lacks."""
        self._call_all("use_tcp", settings, hosts)

    def use_window(self, buffer_bytes: int) -> None:
        """Do nothing: the window follows from the buffer of the socket that listens."""

    def open_socket(self, host: str, kind: int) -> NoReturn:
        """Raise RuntimeError: a socket on another machine cannot be this process's."""
        raise RuntimeError(f"{host} is on a machine of the rack: this process has no sockets there")

    def connect(self, made: socket.socket, source: str, destination: str, port: int) -> NoReturn:
        """Raise RuntimeError, as ``open_socket`` does."""
        self.open_socket(source, made.type)

    def echoes(self, source: str, destination: str, count: int) -> PingResult:
        """Measure round-trip times with ``ping``."""
        return ping(self._spawn, source, destination, count)

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the values of ``TCP_SYSCTLS`` of every host."""
        return {host: values for found in self._call_all("read_sysctls") for host, values in found.items()}

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every interface, of hosts and of machines' gateways."""
        return {interface: facts for found in self._call_all("read_offloads") for interface, facts in found.items()}

    def state_reader(self) -> TcpStates:
        """Return a reader of the state of every connection, at both ends."""
        return _RackTcpStates(self._call_all)


class _RackTcpStates:
    def __init__(self, call_all: _CallAll) -> None:
        self._call_all = call_all

    def read(self) -> list[memoryview]:
        """Return one message for each end of each established connection."""
        return [memoryview(message) for messages in self._call_all("read_tcp_states") for message in messages]

    def close(self) -> None:
        """Do nothing: each machine has a reader for as long as it is leased."""
