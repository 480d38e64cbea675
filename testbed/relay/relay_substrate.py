"""Start the relay of one testbed, and command it."""

import json
import os
import selectors
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.kernel.machine_load import process_tree_cpu_s
from wanbed.testbed.network.address_book import LoopbackAddressBook
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.relay.relay_config import RelayConfig
from wanbed.testbed.substrate.offer import RELAY
from wanbed.testbed.substrate.substrate import SubstrateError, SubstrateFacts

_START_S, _ANSWER_S = 60.0, 20.0


class RelaySubstrate:
    """The relay of one testbed, in place of its gateways. ``folder`` receives its configuration and its log.

    The topology of ``addresses`` is dilated by ``dilation``.
    """

    def __init__(self, addresses: LoopbackAddressBook, folder: Path, marker: str, dilation: float) -> None:
        self._addresses = addresses
        self._folder = folder
        self._marker = marker
        self._dilation = dilation
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._one_at_a_time = threading.Lock()

    def start(self, host_namespaces: Mapping[str, str]) -> SubstrateFacts:
        """Start the relay. Raise SubstrateError if it does not start."""
        hosts = self._addresses.topology.hosts
        config = RelayConfig(
            self._addresses.topology.dilated(1 / self._dilation),
            {host.name: self._addresses.address(host) for host in hosts},
            {host.name: self._addresses.reached_at(host) for host in hosts},
            self._dilation,
        )
        path = self._folder / "relay.json"
        config.write(path)
        with (self._folder / "relay.log").open("wb") as log:
            self._process = subprocess.Popen(
                module_command("wanbed.testbed.relay.relay_process", str(path)),
                env={**os.environ, MARKER: self._marker},
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C goes to the command, which then ends the relay.
                start_new_session=True,
            )
        self._answer(_START_S)
        return SubstrateFacts(RELAY, os.uname().release)

    def settle(self, trim_ns: int) -> None:
        """Deliver ``trim_ns`` earlier between datacenters than configured."""
        self.command({"trim_ns": trim_ns})

    def use_tcp(self, settings: TcpSettings) -> None:
        """Model these settings for connections that are opened from now on."""
        self.command({"tcp": asdict(settings)})

    def look(self) -> None:
        """Let the relay look now where programs listen."""
        self.command({"look": True})

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
        topology = self._addresses.topology
        for source, destination, wire_bytes in self.command({"counters": True})["pairs"]:
            ends = topology.host(source).datacenter, topology.host(destination).datacenter
            if ends[0] != ends[1]:
                sent.setdefault(ends, {})[source, destination] = Counters(wire_bytes, None, 0, 0)
        return [
            PortCounters(*ends, Counters(sum(each.wire_bytes for each in pairs.values()), None, 0, 0), pairs)
            for ends, pairs in sent.items()
        ]

    def cpu_time_s(self) -> float | None:
        """Return the CPU seconds that the relay, which has one thread, has taken so far."""
        return None if self._process is None else process_tree_cpu_s(self._process.pid)

    def stop(self) -> None:
        """End the relay."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            # A relay that has ended leaves bytes in the buffer, which closing sends.
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command to the relay and return its answer. Raise SubstrateError if there is none."""
        assert self._process is not None
        assert self._process.stdin is not None
        # Samplers ask from threads of their own.
        with self._one_at_a_time:
            try:
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._fault("ended") from None
            return self._answer(_ANSWER_S)

    def _answer(self, patience_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as ready:
            ready.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not ready.select(patience_s):
                    raise self._fault(f"did not answer within {patience_s:.0f} s")
                data = os.read(descriptor, 1 << 20)
                if not data:
                    raise self._fault("ended")
                self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fault(self, what: str) -> SubstrateError:
        log = (self._folder / "relay.log").read_text(errors="replace").strip().splitlines()
        return SubstrateError(f"the relay {what}; its stderr tail: {log[-1] if log else 'empty'}")
