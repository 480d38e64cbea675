"""Bring a topology up over several machines, and use it as the testbed of one machine is used."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from wanbed.testbed.claims.registry import STATE_ROOT, Claim, claim
from wanbed.testbed.claims.supervisor import Supervisor
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.hosts.host import HostProcess, SpawnOptions
from wanbed.testbed.hosts.host_environment import HostHome
from wanbed.testbed.hosts.manifest_facts import ManifestFacts
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.processors import CpuTimes
from wanbed.testbed.kernel.tcp import TcpStates
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, check_can_be_emulated
from wanbed.testbed.rack.driver.leasing import (
    Log,
    ask_all,
    check_alike,
    check_lacks_nothing,
    free_slot,
    leased,
    public_keys,
    read_facts,
    timers_of,
    underlays_of,
)
from wanbed.testbed.rack.driver.machine_clock import TimeLine, time_line
from wanbed.testbed.rack.driver.machine_files import FilesOnMachines, Written, fetched
from wanbed.testbed.rack.driver.rack_courses import RackCourses
from wanbed.testbed.rack.driver.rack_failures import RackFailures
from wanbed.testbed.rack.driver.rack_gate import CommonStart, RackGate
from wanbed.testbed.rack.driver.rack_machine import RackMachine, RemoteProgram
from wanbed.testbed.rack.driver.rack_readings import RackGpus, merged_counters
from wanbed.testbed.rack.driver.rack_stacks import RackStacks
from wanbed.testbed.rack.driver.started_module import start_module_on
from wanbed.testbed.rack.machine.facts import MachineFacts
from wanbed.testbed.rack.machine_handle import MachineHandle, MachineOrder, ProgramOrder, RunOrder
from wanbed.testbed.rack.machine_plan import TrunkSplit, first_vni, plan_machines
from wanbed.testbed.rack.sent_files import SentFiles, path_on_machine
from wanbed.testbed.substrate.substrate import SubstrateFacts
from wanbed.testbed.testbed import measured_trim_ns

RACK = "rack"
"""The name of the substrate in manifests."""

_NOT_MEASURED = (
    "short transfers, both ways, shares of a trunk, bursts: one process has no sockets at both ends of a link"
)


@dataclass(frozen=True)
class RackPlacement:
    """Where a network is on a rack: the machine of each host, the gateway machine of each datacenter that has one.

    Programs on a host see the real GPUs, of its machine, that ``gpus`` assigns to it.
    """

    machine_of: Mapping[str, str]
    gateways: Mapping[str, str] = field(default_factory=dict)
    gpus: GpuAssignment | None = None

    @property
    def machines(self) -> frozenset[str]:
        """The machines that carry hosts or are gateways."""
        return frozenset([*self.machine_of.values(), *self.gateways.values()])

    def environments(self, hosts: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the variables that show programs of these hosts their GPUs."""
        return {} if self.gpus is None else {host: self.gpus.environment(host) for host in hosts}


class RackTestbed:
    """A network over several machines that is up. Create one with ``rack_testbed``, never directly."""

    starts_slowly = True

    def __init__(
        self,
        topology: Topology,
        ours: Claim,
        machines: Mapping[str, RackMachine],
        orders: Mapping[str, MachineOrder],
        found: Mapping[str, MachineFacts],
        *,
        gpus: GpuAssignment | None,
        sent: SentFiles | None,
    ) -> None:
        plans = {name: order.plan for name, order in orders.items()}
        first = next(iter(orders.values()))
        self.topology = topology
        self.gpus = gpus
        self.identifier = ours.record.identifier
        self.folder = ours.folder
        self.addresses = AddressBook(topology, first.slot)
        self.mtu_bytes = first.plan.mtu_bytes
        self.gateway_plan = plan_gateways(topology, first.slot, mtu_bytes=self.mtu_bytes)
        self.stacks = RackStacks(self._call_all, self.spawn)
        kernels = dict.fromkeys(found[name].kernel for name in machines)
        self.facts = SubstrateFacts(RACK, ", ".join(kernels))
        self.reason = f"{len(machines)} machines of a rack carry it"
        self.machine_of = {host: name for name, plan in plans.items() for host in plan.hosts}
        self._machines = machines
        self._plans = plans
        self._overlay = first.run.overlay
        self._found = found
        self._sent = sent
        self._epoch_ns = 0
        self._start = CommonStart()
        self.changing = RackCourses(machines, plans, self._start) if first.run.shaped and topology.changes else None
        """The object that changes the WAN links, None if none changes. Until then all have their first conditions."""

    @property
    def module_parent(self) -> int:
        """PID of this process; on a machine it is replaced by that of the machine's."""
        return os.getpid()

    def namespace(self, host: str) -> str:
        """Raise RuntimeError: a namespace on another machine has no path here."""
        raise RuntimeError(f"{host} is on a machine of the rack: its namespace has no path here")

    def spawn(
        self, host: str, argv: list[str], *, gpu: int | None = None, **popen: Unpack[SpawnOptions]
    ) -> RemoteProgram:
        """Start any program on a host, in the environment of its machine. It ends with the testbed at the latest.

        Its output, standard error included, is read as text, whatever ``popen`` says.
        """
        machine = self._machine(host)
        program = ProgramOrder(argv=tuple(argv), environment=self._gpu_environment(host, gpu))
        return machine.start(host, program, lambda number: RemoteProgram(number, machine))

    def start_module(
        self, host: str, module: str, arguments: list[str], output: int, *, gpu: int | None = None
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on a host; its return value is the exit status.

        ``start_module_on`` says what of its files goes there and comes back.
        """
        environment = self._gpu_environment(host, gpu)
        machine, folder = self._machine(host), self.folder
        return start_module_on(machine, host, module, arguments, output, folder=folder, environment=environment)

    def use_tcp(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings on these hosts, by default on every one, for connections opened from now on."""
        self.stacks.use(settings, hosts)

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every gateway port's qdiscs from the kernels, by ``machine interface``."""
        return {port: held for found in self._call_all("read_qdiscs") for port, held in found.items()}

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the values of ``TCP_SYSCTLS`` of every host; None for one that its kernel does not have."""
        return self.stacks.read_sysctls()

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every interface, by ``host interface`` and ``machine interface``."""
        return self.stacks.read_offloads()

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every trunk, each summed over the machines that send into it."""
        return merged_counters(self._call_all("read_counters"))

    def tcp_state_reader(self) -> TcpStates:
        """Return a reader of the state of every connection, at both ends."""
        return self.stacks.state_reader()

    def network_cpu_time_s(self) -> float | None:
        """Return None: the kernels' network processing cannot be separated from the machines' other work."""
        return None

    def cpu_times(self) -> dict[str, CpuTimes]:
        """Read the CPU times of every machine."""
        return dict(zip(self._machines, self._call_all("cpu_times"), strict=True))

    def rdma_sent_bytes(self) -> dict[str, int]:
        """Read how much each port of an RDMA device has sent since it came up, by ``machine device/port``."""
        read = zip(self._machines, self._call_all("rdma_sent_bytes"), strict=True)
        return {f"{name} {port}": sent for name, ports in read for port, sent in ports.items()}

    def gpu_reader(self) -> RackGpus | None:
        """Return a reader of the GPUs that hosts own, each on its machine; None if they own none."""
        uuids: dict[str, dict[str, None]] = {}
        for seat in () if self.gpus is None else self.gpus.seats():
            uuids.setdefault(self.machine_of[seat.host], {})[seat.uuid] = None
        if not uuids:
            return None
        return RackGpus([*self._machines.values()], {name: [*own] for name, own in uuids.items()})

    def check(self) -> None:
        """Raise MachineLostError if a machine has gone."""
        for machine in self._machines.values():
            machine.check()

    def home(self, host: str) -> HostHome:
        """Return what programs find on a host: of this machine's files only those that were sent are elsewhere."""
        lease = self._machine(host).lease
        place = partial(path_on_machine, self._sent, lease.sent_folder)
        return HostHome(lease.run_module, lease.search_path, place)

    def mirror(self, folder: Path) -> FilesOnMachines:
        """Return copies of what processes write to this folder, below this one's, on machines. None is made yet."""
        return FilesOnMachines(self._carrying(), self.folder, self._relative(folder))

    def shared(self, folder: Path) -> FilesOnMachines:
        """Return this folder, below this one's, as processes on machines have it, as if they shared a disk."""
        return self.mirror(folder)

    @property
    def failures(self) -> RackFailures:
        """The way to let hosts and ranks fail on their machines."""
        return RackFailures(self._machines, self.machine_of)

    def take_written(self, folder: Path, name: str, most_bytes: int) -> Written:
        """Return what users' programs have written since the last call, fetched below ``folder``; see ``fetched``."""
        if self._sent is None:
            return Written()
        return fetched(self._carrying(), self._sent.roots, folder, name, most_bytes)

    def gate(
        self,
        folder: Path,
        hosts: Sequence[str],
        pipes: tuple[str, str],
        *,
        begin: Callable[[], None] = lambda: None,
        opens_itself: bool = True,
    ) -> RackGate:
        """Return a gate for a rank on each of these hosts, whose pipes are in ``folder``, which is below this one's."""
        return RackGate(
            self._machines,
            self.machine_of,
            hosts,
            self._relative(folder),
            pipes,
            start=self._start,
            begin=begin,
            opens_itself=opens_itself,
        )

    def begin_trial(self, epoch_ns: int) -> None:
        """Measure the machines' clocks before a trial that begins at ``epoch_ns`` of this process's."""
        self._epoch_ns = epoch_ns
        for machine in self._machines.values():
            machine.check()
            machine.clock.begin()

    def time_line(self) -> TimeLine:
        """Measure the machines' clocks, and return the time line of a trial until now."""
        return time_line({name: each.clock for name, each in self._machines.items()}, self.machine_of, self._epoch_ns)

    def end_trial(self) -> TimeLine:
        """End the trial, and return its time line."""
        line = self.time_line()
        for machine in self._machines.values():
            machine.clock.end()
        return line

    def manifest_facts(self) -> ManifestFacts:
        """Return the machines' facts and what carries their packets, and of the network what each of them carries."""
        document = {
            "overlay": self._overlay,
            "mtu_bytes": self.mtu_bytes,
            "machines": {name: self._found[name].document() for name in self._machines},
            "gateways": {
                plan.gateway.datacenter: name for name, plan in self._plans.items() if {*plan.senders} - {*plan.hosts}
            },
            "not_measured": _NOT_MEASURED,
        }
        hosts = {name: [*plan.hosts] for name, plan in self._plans.items()}
        split = {f"{each.source} to {each.destination}": each.machines for each in self.trunk_splits()}
        return ManifestFacts({"rack": document}, {"rack_hosts": hosts, "trunk_split": split})

    def trunk_splits(self) -> list[TrunkSplit]:
        """Return how each trunk is divided that several machines send into, each once."""
        return [*dict.fromkeys(split for plan in self._plans.values() for split in plan.trunk_splits)]

    def settle_wan(self) -> None:
        """Reduce the WAN delays by what the idle path itself adds one-way: forwarding, late timers, and the cards."""
        if self.topology.wan:
            trim_ns = measured_trim_ns(self.topology, self.stacks)
            self._call_all("settle", trim_ns)
            self.facts = replace(self.facts, trim_ns=trim_ns)

    def _machine(self, host: str) -> RackMachine:
        return self._machines[self.machine_of[self.topology.host(host).name]]

    def _carrying(self) -> list[RackMachine]:
        return [self._machines[name] for name in dict.fromkeys(self.machine_of.values())]

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self.folder))

    def _gpu_environment(self, host: str, gpu: int | None) -> dict[str, str]:
        return {} if self.gpus is None else self.gpus.environment(host, gpu)

    def _call_all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every machine at the same time and return what each returned, in the machines' order."""
        self.check()
        return ask_all([*self._machines.values()], method, *arguments)


@contextmanager
def rack_testbed(
    topology: Topology,
    machines: Sequence[MachineHandle],
    placement: RackPlacement,
    run: RunOrder,
    *,
    sent: SentFiles | None = None,
    log: Log = lambda _: None,
    root: Path = STATE_ROOT,
) -> Iterator[RackTestbed]:
    """Bring a topology up over machines, yield it as a testbed, and take it down on every machine.

    Machines that ``placement`` does not name are left alone. Users' programs find the files ``sent``, which machines
    with hosts have received before. ``log`` gets a line for each way in which the machines differ. However this process
    ends, every machine ends its part, at the latest when this process has been silent for its ``lease_s``.

    Raise InputError for machines that cannot carry the topology, MissingError for one that lacks something, has
    another wanbed or is leased to another run, and what bringing up a network raises.
    """
    check_can_be_emulated(topology)
    used = [each for each in machines if each.name in placement.machines]
    found = read_facts(used)
    check_alike(found, log)
    if run.shaped:
        check_lacks_nothing(found)
    slot, underlays = free_slot(used), underlays_of(found, run.overlay, public_keys(used, run.overlay))
    hosts_file = AddressBook(topology, slot).hosts_file()
    ours = claim(run.name, root)
    with Supervisor(ours.record.identifier, root=root) as supervisor:
        try:
            plans = plan_machines(
                topology,
                slot,
                first_vni(slot),
                placement.machine_of,
                underlays,
                timers=timers_of(found),
                tag=int(ours.record.identifier[-6:], 16),
                gateways=placement.gateways,
            )
            orders = {
                name: MachineOrder(
                    run,
                    slot,
                    plan,
                    hosts_file,
                    placement.environments(plan.hosts),
                    None if sent is None or not plan.hosts else sent.digest,
                )
                for name, plan in plans.items()
            }
            with leased(used, orders) as held:
                testbed = RackTestbed(topology, ours, held, orders, found, gpus=placement.gpus, sent=sent)
                if run.shaped:
                    testbed.settle_wan()
                yield testbed
        finally:
            ours.release()
            supervisor.dismiss()
