"""Use the TCP of a testbed's hosts: set it, read it back, and open sockets there."""

import socket
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from wanbed.testbed.hosts.host import NetworkHost
from wanbed.testbed.hosts.host_attachment import TCP_SYSCTLS
from wanbed.testbed.hosts.ping import PingResult, Spawn, ping
from wanbed.testbed.kernel.namespace import inside, read_sysctls, write_sysctls
from wanbed.testbed.kernel.offloads import read_offloads
from wanbed.testbed.kernel.tcp import TcpStateReader, TcpStates, allow_congestion_control
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.rights import large_buffers_allowed


class TcpStacks(Protocol):
    """The TCP of all hosts of one testbed.

    ``modelled`` says whether it is a model and not the kernel's, ``opens_sockets`` whether this process can have
    sockets on any host, with ``open_socket``.
    """

    modelled: bool
    opens_sockets: bool

    def use(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings on these hosts, by default on every one, for connections opened from now on."""

    def use_window(self, buffer_bytes: int) -> None:
        """Let connections opened from now on have the window of a receive buffer of that size."""

    def open_socket(self, host: str, kind: int) -> socket.socket:
        """Open a socket on a host, bound to its address and any port."""

    def connect(self, made: socket.socket, source: str, destination: str, port: int) -> None:
        """Connect a socket on ``source`` to a socket that listens on ``destination``. Raise OSError on failure."""

    def echoes(self, source: str, destination: str, count: int) -> PingResult:
        """Measure round-trip times between two hosts. Raise MeasurementError on failure."""

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the values of ``TCP_SYSCTLS`` of every host; None for one that the kernel does not have."""

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every host's interface, by ``host interface``."""

    def state_reader(self) -> TcpStates | None:
        """Return a reader of the state of every connection, None if there is nothing to read."""


def apply_tcp(settings: TcpSettings, known: Mapping[str, NetworkHost], hosts: Collection[str] | None = None) -> None:
    """Apply TCP settings on those of the ``known`` hosts that ``hosts`` names, by default on all.

    Raise MissingError for a congestion control that the kernel lacks.
    """
    allow_congestion_control(settings.congestion)
    sysctls = settings.sysctls(makes_room=not large_buffers_allowed())
    for name, node in known.items():
        if hosts is None or name in hosts:
            write_sysctls(node.namespace, sysctls)


def sysctls_of(hosts: Mapping[str, NetworkHost]) -> dict[str, dict[str, str | None]]:
    """Read the values of ``TCP_SYSCTLS`` of every host; None for one that the kernel does not have."""
    return {name: read_sysctls(node.namespace, TCP_SYSCTLS) for name, node in hosts.items()}


def offloads_of(hosts: Mapping[str, NetworkHost]) -> dict[str, Any]:
    """Read sizes and offloads of every host's interface, by ``host interface``."""
    return {
        f"{name} {HOST_INTERFACE}": read_offloads(node.namespace, [HOST_INTERFACE])[HOST_INTERFACE]
        for name, node in hosts.items()
    }


class KernelStacks:
    """The kernel's TCP in each host's network namespace. ``spawn`` starts a program on a host."""

    modelled = False
    opens_sockets = True

    def __init__(self, hosts: Mapping[str, NetworkHost], addresses: AddressBook, spawn: Spawn) -> None:
        self._hosts = hosts
        self._addresses = addresses
        self._spawn = spawn

    def use(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings. Raise MissingError for a congestion control that the kernel lacks."""
        apply_tcp(settings, self._hosts, hosts)

    def use_window(self, buffer_bytes: int) -> None:
        """Do nothing: the window follows from the buffer of the socket that listens."""

    def open_socket(self, host: str, kind: int) -> socket.socket:
        """Open a socket in a host's namespace, bound to its address and any port."""
        with inside(self._hosts[host].namespace):
            made = socket.socket(socket.AF_INET, kind)
        made.bind((self._address(host), 0))
        return made

    def connect(self, made: socket.socket, source: str, destination: str, port: int) -> None:
        """Connect a socket on ``source`` to a socket that listens on ``destination``. Raise OSError on failure."""
        made.connect((self._address(destination), port))

    def echoes(self, source: str, destination: str, count: int) -> PingResult:
        """Measure round-trip times with ``ping``."""
        return ping(self._spawn, source, destination, count)

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the values of ``TCP_SYSCTLS`` of every host."""
        return sysctls_of(self._hosts)

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every host's interface."""
        return offloads_of(self._hosts)

    def state_reader(self) -> TcpStateReader | None:
        """Return a reader of the state of every connection, at both ends. Close it before the testbed ends."""
        return TcpStateReader(node.namespace for node in self._hosts.values())

    def _address(self, host: str) -> str:
        return self._addresses.address(self._addresses.topology.host(host))
