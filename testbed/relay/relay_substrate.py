"""Start the relay of one testbed, and command it."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.kernel.machine_load import process_tree_cpu_s
from wanbed.testbed.network.address_book import LoopbackAddressBook
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.relay.relay_config import RelayConfig
from wanbed.testbed.substrate.asked_process import AskedProcess
from wanbed.testbed.substrate.offer import RELAY
from wanbed.testbed.substrate.substrate import SubstrateFacts

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
