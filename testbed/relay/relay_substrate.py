"""Start the relay of one testbed, command it, and use the TCP that it models for the testbed's hosts."""

import json
import os
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from wanbed.ground.exclusions import Refusal, as_check
from wanbed.ground.impairments import IMPAIRMENTS, UNIMPAIRED
from wanbed.ground.socket_owner import accept_own, listener_at
from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.ping import PATIENCE_S, MeasurementError, PingResult
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.kernel.processors import process_tree_cpu_s
from wanbed.testbed.network.address_book import LoopbackAddressBook
from wanbed.testbed.network.tcp_settings import KERNEL_WINDOW_SHARE, TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.relay.relay_config import RelayConfig
from wanbed.testbed.substrate.asked_process import AskedProcess
from wanbed.testbed.substrate.offer import RELAY
from wanbed.testbed.substrate.substrate import SubstrateError, SubstrateFacts

_START_S, _ANSWER_S = 60.0, 20.0


@contextmanager
def running_relay(
    addresses: LoopbackAddressBook, folder: Path, marker: str, dilation: float
) -> Iterator["RelaySubstrate"]:
    """Start a relay, which ends with the block. Raise SubstrateError if it does not start.

    ``folder`` receives its configuration and its log. The topology of ``addresses`` is dilated by ``dilation``.
    """
    hosts = addresses.topology.hosts
    config = RelayConfig(
        addresses.topology.dilated(1 / dilation),
        {host.name: addresses.address(host) for host in hosts},
        {host.name: addresses.reached_at(host) for host in hosts},
        dilation,
    )
    path = folder / "relay.json"
    config.write(path)
    argv = module_command("wanbed.testbed.relay.relay_process", str(path))
    process = AskedProcess("the relay", argv, {**os.environ, MARKER: marker}, folder / "relay.log", cwd="/")
    with closing(process):
        process.answer(_START_S)
        yield RelaySubstrate(addresses.topology, process)


class RelaySubstrate:
    """The relay of one testbed, in place of its gateways; ``process`` is it."""

    def __init__(self, topology: Topology, process: AskedProcess) -> None:
        self._topology = topology
        self._process = process
        self.facts = SubstrateFacts(RELAY, os.uname().release)

    def settle(self, trim_ns: int) -> None:
        """Deliver ``trim_ns`` earlier between datacenters than configured."""
        self._ask({"trim_ns": trim_ns})

    def use_tcp(self, settings: TcpSettings) -> None:
        """Model these settings for connections that are opened from now on."""
        self._ask({"tcp": asdict(settings)})

    def look(self) -> None:
        """Let the relay look now where programs listen."""
        self._ask({"look": True})

    def changing(self) -> None:
        """Return None: links that change are refused beforehand."""
        return

    def read_qdiscs(self) -> dict[str, Any]:
        """Return nothing: no kernel queue shapes."""
        return {}

    def read_offloads(self) -> dict[str, Any]:
        """Return nothing: there are no ports."""
        return {}

    def read_counters(self) -> list[PortCounters]:
        """Return the bytes that the connections between every two datacenters were let out, as wire bytes.

        Acknowledgements are not among them, the relay has no packets, and it drops none.
        """
        sent: dict[tuple[str, str], dict[tuple[str, str], Counters]] = {}
        for source, destination, wire_bytes in self._ask({"counters": True})["pairs"]:
            ends = self._topology.host(source).datacenter, self._topology.host(destination).datacenter
            if ends[0] != ends[1]:
                sent.setdefault(ends, {})[source, destination] = Counters(wire_bytes, None, 0, 0)
        return [
            PortCounters(*ends, Counters(sum(each.wire_bytes for each in pairs.values()), None, 0, 0), pairs)
            for ends, pairs in sent.items()
        ]

    def cpu_time_s(self) -> float | None:
        """Return the CPU seconds that the relay, which has one thread, has taken so far."""
        return process_tree_cpu_s(self._process.pid)

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        return self._process.ask(json.dumps(command), _ANSWER_S)


_NETEM = "use netem (--substrate kernel or guest)"


@as_check
def check_can_be_relayed(topology: Topology) -> Iterator[Refusal]:
    """Raise InputError for links that change, and for impairments: a relay has no packets to lose or overtake."""
    for link in topology.wan:
        for source, destination in link.course_by_ends:
            yield Refusal(
                f"--substrate relay: the link from {source} to {destination} changes during a trial, which a relay "
                f"cannot make happen: leave its changes out, or {_NETEM}"
            )
    for link in topology.wan:
        for (source, destination), conditions in link.directions:
            for each in IMPAIRMENTS:
                if getattr(conditions.impairments, each.field) != getattr(UNIMPAIRED, each.field):
                    yield Refusal(
                        f"--substrate relay: {source} to {destination} has {each.name}, which a relay does not model: "
                        f"leave it out, or {_NETEM}"
                    )


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
