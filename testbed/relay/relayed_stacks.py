"""Use the TCP that a relay models for a testbed's hosts."""

import socket
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from wanbed.ground.tcp_caller import accept_own
from wanbed.ground.tcp_listener import listener_at
from wanbed.testbed.hosts.ping import PATIENCE_S, MeasurementError, PingResult
from wanbed.testbed.network.address_book import LoopbackAddressBook
from wanbed.testbed.network.tcp_settings import KERNEL_WINDOW_SHARE, TcpSettings
from wanbed.testbed.relay.relay_substrate import RelaySubstrate
from wanbed.testbed.substrate.substrate import SubstrateError

_MOST_ECHOES = 20
"""Echoes follow one another, each after a round trip."""


class RelayedStacks:
    """Hosts on the loopback of this machine, whose connections a relay carries."""

    modelled = True
    opens_sockets = True

    def __init__(self, addresses: LoopbackAddressBook, relay: RelaySubstrate) -> None:
        self._addresses = addresses
        self._relay = relay
        self._settings = TcpSettings()

    def use(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Let the relay model these settings, for connections opened from now on.

        Raise ValueError if only some ``hosts`` are to have them: a relay has one TCP.
        """
        if hosts is not None:
            raise ValueError("a relay models one TCP for all hosts")
        self._settings = settings
        self._relay.use_tcp(settings)

    def use_window(self, buffer_bytes: int) -> None:
        """Let the relay model the window of such a receive buffer, for connections opened from now on."""
        self.use(replace(self._settings, window_bytes=int(KERNEL_WINDOW_SHARE * buffer_bytes)))

    def open_socket(self, host: str, kind: int) -> socket.socket:
        """Open a socket, bound to a host's address and any port."""
        made = socket.socket(socket.AF_INET, kind)
        made.bind((self._addresses.address(self._addresses.topology.host(host)), 0))
        return made

    def connect(self, made: socket.socket, source: str, destination: str, port: int) -> None:
        """Connect a socket on ``source`` to a socket that listens on ``destination``. Raise OSError on failure.

        Raise SubstrateError if another user's program listens where it would be reached.
        """
        self._relay.look()
        topology = self._addresses.topology
        address = self._addresses.address_from(topology.host(destination), topology.host(source))
        listener = listener_at(address, port)
        if listener is not None and not listener.own:
            raise SubstrateError(f"--substrate relay: {listener}, where {destination} is reached: end that program")
        made.connect((address, port))

    def echoes(self, source: str, destination: str, count: int) -> PingResult:
        """Measure round-trip times over one connection: a byte there, and one back."""
        count = min(count, _MOST_ECHOES)
        times_ms = []
        try:
            with self.open_socket(destination, socket.SOCK_STREAM) as listener:
                listener.listen(1)
                with self.open_socket(source, socket.SOCK_STREAM) as one:
                    self.connect(one, source, destination, listener.getsockname()[1])
                    with accept_own(listener) as other:
                        for each in (one, other):
                            each.settimeout(PATIENCE_S)
                            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        for _ in range(count):
                            times_ms.append(_echo_ms(one, other))
        except OSError as fault:
            raise MeasurementError(f"{source} to {destination}: no echo through the relay ({fault})") from None
        return PingResult(count, tuple(sorted(times_ms)))

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Return nothing: the kernel's TCP settings do not count."""
        return {}

    def read_offloads(self) -> dict[str, Any]:
        """Return nothing: hosts have no interfaces."""
        return {}

    def state_reader(self) -> None:
        """Return None: the kernel knows only the connections to the relay."""


def _echo_ms(one: socket.socket, other: socket.socket) -> float:
    began_ns = time.monotonic_ns()
    one.send(b"?")
    other.send(other.recv(1))
    one.recv(1)
    return (time.monotonic_ns() - began_ns) / 1e6
