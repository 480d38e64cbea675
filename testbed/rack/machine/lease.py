"""Hold what one machine provides for one run: hosts, their part of the network, files, gates and processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from wanbed.ground.errors import InputError, MissingError
from wanbed.module_process import RUN_MODULE
from wanbed.testbed.claims.cleaning import end_processes
from wanbed.testbed.claims.registry import Claim, claim, claims
from wanbed.testbed.claims.supervisor import Supervisor
from wanbed.testbed.gpus.gpus import GpuReader, GpuReadings
from wanbed.testbed.host_kinds import host_network
from wanbed.testbed.hosts.host import HostNetwork, NetworkHost
from wanbed.testbed.hosts.host_attachment import attach_host
from wanbed.testbed.hosts.host_environment import search_path, write_host_files
from wanbed.testbed.hosts.start_gate import GatePipes
from wanbed.testbed.hosts.tcp_stacks import apply_tcp, offloads_of, sysctls_of
from wanbed.testbed.kernel.course_run import CourseRecord
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.processors import prompt_wakeups
from wanbed.testbed.kernel.tcp import TcpStateReader, allow_congestion_control
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.rack.clock_port import ClockPort
from wanbed.testbed.rack.machine.lease_files import LeaseFiles, WrittenFiles
from wanbed.testbed.rack.machine.lease_processes import LeaseProcesses, MachineFailures
from wanbed.testbed.rack.machine.machine_network import MachineNetwork
from wanbed.testbed.rack.machine_handle import LeaseFacts, MachineOrder, ProgramOrder
from wanbed.testbed.rack.sent_files import unpack

_RECORD = "lease.json"
_MODULES = "modules.zip"

P = ParamSpec("P")
T = TypeVar("T")


class Lease:
    """One machine's part of a run, from ``bring_up`` to ``take_down``; a supervisor ends it if this process dies.

    ``sent`` is the archive of the files that the order names, None without them. ``private_key`` is this machine's of
    an encrypted overlay. ``asked`` is called whenever the driver asks for the clock by a datagram.
    """

    def __init__(
        self,
        order: MachineOrder,
        root: Path,
        sent: bytes | None = None,
        private_key: str = "",
        asked: Callable[[], None] = lambda: None,
    ) -> None:
        self.order = order
        self._asked = asked
        self._private_key = private_key
        self._sent = sent
        self._claim: Claim = claim(f"machine {order.plan.machine} for {order.run.name}", root, slot=order.slot)
        self._root = root
        self._supervisor: Supervisor | None = None
        self._ending = ExitStack()
        # A netlink socket reaches its namespace only from the thread that opened it.
        self._netlink = ThreadPoolExecutor(max_workers=1, thread_name_prefix="netlink")
        self._hosts: dict[str, NetworkHost] = {}
        self._gates: dict[str, GatePipes] = {}
        self._tcp_states: TcpStateReader | None = None
        self._imports: dict[str, str] = {}
        self._gpus: dict[tuple[str, ...], GpuReader] = {}
        self.written: WrittenFiles | None = None
        self._network: HostNetwork
        self._substrate: MachineNetwork
        self.files: LeaseFiles
        self.processes: LeaseProcesses

    @property
    def _identifier(self) -> str:
        return self._claim.record.identifier

    def bring_up(self) -> LeaseFacts:
        """Create the hosts and their network. ``take_down`` removes what was created, whether it succeeds or not."""
        folder, order = self._claim.folder, self.order
        (folder / _RECORD).write_text(json.dumps({"run": order.run.name}))
        self._supervisor = Supervisor(self._identifier, root=self._root, orphaned=True)
        self._network = host_network()
        outputs = folder / "outputs"
        outputs.mkdir()
        self.processes = LeaseProcesses(outputs)
        # Callbacks run from the last to the first, each even if another one fails. Processes end first.
        self._ending.enter_context(prompt_wakeups())
        self._ending.callback(self._netlink.shutdown)
        self._ending.callback(self._network.stop)
        substrate = self._ending.enter_context(ExitStack())
        self._ending.callback(self._close_gates)
        self._ending.callback(self.processes.close)
        self._ending.callback(end_processes, self._identifier)
        self._ending.callback(self._close_tcp_states)
        self._ending.callback(self._close_gpus)
        (folder / "files").mkdir()
        self.files = LeaseFiles(folder / "files")
        if order.run.modules:
            (folder / _MODULES).write_bytes(order.run.modules)
            theirs = os.environ.get("PYTHONPATH")
            self._imports = {"PYTHONPATH": os.pathsep.join([str(folder / _MODULES), *([theirs] if theirs else [])])}
        etc = write_host_files(folder / "etc", order.hosts_file)
        for port in order.plan.host_ports:
            node = self._network.add(port.host, self._identifier)
            node.configure(etc, port.host_address, order.environments.get(port.host, {}))
            self._hosts[port.host] = node
        namespaces = {name: node.namespace for name, node in self._hosts.items()}
        self._substrate = self._on_netlink(
            MachineNetwork,
            order.plan,
            self._network,
            self._identifier,
            namespaces,
            shaped=order.run.shaped,
            private_key=self._private_key,
        )
        substrate.callback(self._on_netlink, self._substrate.stop)
        allow_congestion_control(TcpSettings().congestion)
        for port in order.plan.host_ports:
            attach_host(self._hosts[port.host].namespace, order.plan.gateway, port, order.plan.mtu_bytes)
        clock = ClockPort(order.plan.underlay.address, self._asked)
        self._ending.callback(clock.close)
        return LeaseFacts(
            self._substrate.facts.kernel,
            str(folder / "files"),
            self._network.module_parent,
            clock.place,
            (sys.executable, *RUN_MODULE),
            search_path(),
            self._unpacked(),
        )

    def _unpacked(self) -> str | None:
        """Unpack what was sent, and return where."""
        if self._sent is None:
            return None
        folder = self._claim.make_disk_folder()
        unpack(self._sent, folder)
        self.written = WrittenFiles(folder)
        return str(folder)

    def take_down(self) -> None:
        """End every process and remove everything. If that fails, the supervisor ends what is left."""
        try:
            self._ending.close()
            # Only after a complete end: otherwise the record is needed to find what is left.
            self._claim.release()
            if self._supervisor is not None:
                self._supervisor.dismiss()
        finally:
            if self._supervisor is not None:
                self._supervisor.__exit__()

    def settle(self, trim_ns: int) -> None:
        """Complete the WAN links, whose delays are ``trim_ns`` below the configured ones."""
        self._on_netlink(self._substrate.settle, trim_ns)

    def hold_links(self, time_ns: int) -> None:
        """Put this machine's ports that change in their states at a time since training began, and read them back."""
        self._on_netlink(lambda: self._substrate.courses().hold(time_ns))

    def begin_links(self, begin_ns: int) -> None:
        """Let their courses begin at a moment of this machine's clock, in place of those that run."""
        self._on_netlink(lambda: self._substrate.courses().begin_at(begin_ns))

    def end_links(self) -> CourseRecord:
        """End their courses, put the ports in their first states, read them back, and return what was changed."""
        return self._on_netlink(lambda: self._substrate.courses().end())

    def start(self, host: str, what: ProgramOrder) -> int:
        """Start a program on a host of this machine and return its number."""
        if host not in self._hosts:
            raise InputError(f"host {host!r} is not on this machine, which has {', '.join(self._hosts)}")
        node = self._hosts[host]
        self.files.write(what.files)
        environment = {**self._imports, **self.order.environments.get(host, {}), **what.environment}
        if what.module is None:
            spawn = partial(node.spawn, list(what.argv), env={**os.environ, **environment})
            return self.processes.start(lambda output: spawn(stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        arguments = [str(self.files.path(each)) if each in what.files else each for each in what.arguments]
        module = what.module
        return self.processes.start(lambda output: node.start_module(module, arguments, output, environment))

    @property
    def failures(self) -> MachineFailures:
        """The parts of this machine that can fail."""
        return MachineFailures(self.order.plan, self._hosts, self.processes)

    def make_gate(self, path: str, pipes: tuple[str, str]) -> None:
        """Make a gate in a new folder below the lease's, which replaces an earlier gate of that path."""
        if path in self._gates:
            self.remove_gate(path)
        self._gates[path] = GatePipes(self.files.path(path), pipes)

    def remove_gate(self, path: str) -> None:
        """Open a gate and remove it."""
        self._gates.pop(path).close()
        for pipe in self.files.path(path).iterdir():
            pipe.unlink()
        self.files.path(path).rmdir()

    def gate(self, path: str) -> GatePipes:
        """Return a gate by its path."""
        return self._gates[path]

    def use_tcp(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings on those of its hosts that ``hosts`` names, by default on all, from now on."""
        apply_tcp(settings, self._hosts, hosts)

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the TCP sysctls of every host."""
        return sysctls_of(self._hosts)

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every interface."""
        return {**offloads_of(self._hosts), **self._on_netlink(self._substrate.read_offloads)}

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel."""
        return self._on_netlink(self._substrate.read_qdiscs)

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port."""
        return self._on_netlink(self._substrate.read_counters)

    def read_tcp_states(self) -> list[bytes]:
        """Read the state of every connection of every host, as the kernel's messages."""
        if self._tcp_states is None:
            self._tcp_states = TcpStateReader(node.namespace for node in self._hosts.values())
        return [bytes(message) for message in self._tcp_states.read()]

    def read_gpus(self, uuids: tuple[str, ...]) -> tuple[GpuReadings, tuple[str, ...]]:
        """Read these GPUs of this machine. Return the readings, and why some of them are not read any more."""
        if uuids not in self._gpus:
            self._gpus[uuids] = GpuReader(uuids)
        reader = self._gpus[uuids]
        return reader.read(), tuple(reader.faults)

    def _on_netlink(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return self._netlink.submit(function, *arguments, **named).result()

    def _close_tcp_states(self) -> None:
        if self._tcp_states is not None:
            self._tcp_states.close()

    def _close_gpus(self) -> None:
        for reader in self._gpus.values():
            reader.close()

    def _close_gates(self) -> None:
        for gate in self._gates.values():
            gate.close()


def check_unleased(root: Path) -> None:
    """Raise MissingError, naming the run, if a living process has leased this machine already."""
    for held in claims(root):
        record = held.folder / _RECORD
        if held.record.owner_alive() and record.is_file():
            run = json.loads(record.read_text())["run"]
            raise MissingError(
                f"it is leased to the run {run} (process {held.record.owner_pid}): wait, or end that one"
            )
