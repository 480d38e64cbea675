"""Bring up a testbed, hosts in emulated datacenters, for the duration of a ``with`` block."""

import math
import os
import subprocess
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from wanbed.ground.errors import MissingError
from wanbed.testbed.claims.cleaning import end_processes
from wanbed.testbed.claims.registry import STATE_ROOT, Claim, claim
from wanbed.testbed.claims.supervisor import Supervisor
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.hosts.failures import FailuresHere
from wanbed.testbed.hosts.host import HostNetwork, HostProcess, NetworkHost, SpawnOptions
from wanbed.testbed.hosts.host_attachment import attach_host
from wanbed.testbed.hosts.host_environment import missing_programs, system_path, write_host_files
from wanbed.testbed.hosts.hosts_here import HostsHere
from wanbed.testbed.hosts.joining import record_hosts
from wanbed.testbed.hosts.tcp_stacks import KernelStacks, TcpStacks
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.processors import prompt_wakeups
from wanbed.testbed.kernel.tcp import TcpStates, allow_congestion_control
from wanbed.testbed.network.address_book import AddressBook, LoopbackAddressBook
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, check_can_be_emulated
from wanbed.testbed.relay.loopback_hosts import LoopbackNetwork, LoopbackSubnet
from wanbed.testbed.relay.relay_substrate import RelayedStacks, check_can_be_relayed, running_relay
from wanbed.testbed.substrate.guest_kernel import MAX_GUEST_HOSTS, guest_gateways
from wanbed.testbed.substrate.host_kernel import UNSHAPED, kernel_gateways, unshaped_gateways, unshaped_offer
from wanbed.testbed.substrate.offer import GUEST, RELAY, Offer
from wanbed.testbed.substrate.probe import choose_substrate
from wanbed.testbed.substrate.substrate import ChangingLinks, Substrate, SubstrateError, SubstrateFacts
from wanbed.testbed.virtual_time.repeatability import lift_kernel_limits

_TRIM_PINGS, _TRIM_PINGS_VIRTUAL = 50, 2
MAX_TRIM_NS = 1_000_000


class Testbed(HostsHere):
    """A network that is up on this machine. Create one with ``bring_up``, never directly."""

    __test__ = False

    def __init__(self, topology: Topology, ours: Claim, offer: Offer, gpus: GpuAssignment | None = None) -> None:
        self.topology = topology
        self.mtu_bytes = topology.mtu_bytes
        self.gpus = gpus
        self.identifier = ours.record.identifier
        self.folder = ours.folder
        self.gateway_plan: GatewayPlan = plan_gateways(topology, ours.record.slot, _timers(offer))
        self.addresses: AddressBook
        self.network: HostNetwork
        self.stacks: TcpStacks
        self._hosts: dict[str, NetworkHost] = {}
        self._substrate: Substrate
        self._parts = ExitStack()
        self.reason = offer.reason
        self.facts = SubstrateFacts(offer.name, "")
        if offer.name == RELAY:
            subnet = LoopbackSubnet()
            self._parts.callback(subnet.close)
            self.addresses = LoopbackAddressBook(topology, subnet.number)
            self.network = LoopbackNetwork()
        else:
            # Mininet comes with it, which hosts without namespaces do not need.
            from wanbed.testbed.host_kinds import host_network  # noqa: PLC0415

            self.addresses = AddressBook(topology, ours.record.slot)
            self.network = host_network()
        self._parts.callback(self.network.stop)

    def _start(self, dilation: float, *, awake: bool) -> None:
        etc = write_host_files(self.folder / "etc", self.addresses.hosts_file())
        for host in self.topology.hosts:
            node = self.network.add(host.name, self.identifier)
            node.configure(etc, self.addresses.address(host), self._gpu_environment(host.name))
            self._hosts[host.name] = node
        if in_virtual_time():
            lift_kernel_limits()
        if isinstance(self.addresses, LoopbackAddressBook):
            up = running_relay(self.addresses, self.folder, self.identifier, dilation)
            self._substrate = relay = self._parts.enter_context(up)
            self.stacks = RelayedStacks(self.addresses, relay)
        else:
            self._substrate = self._parts.enter_context(self._gateways())
            self.stacks = KernelStacks(self._hosts, self.addresses, self.spawn)
            allow_congestion_control(TcpSettings().congestion)
            for gateway in self.gateway_plan.gateways:
                for port in gateway.host_ports:
                    attach_host(self._hosts[port.host].namespace, gateway, port, self.mtu_bytes)
        self.facts = replace(self._substrate.facts, prompt_wakeups=awake)
        if self.facts.name == UNSHAPED:
            # Not recorded: a process that joins this network by its topology expects the WAN.
            return
        self._settle_wan()
        shells = {name: pid for name, node in self._hosts.items() if (pid := node.shell_pid) is not None}
        if shells:
            record_hosts(self.folder, self.topology, shells, {name: self._gpu_environment(name) for name in shells})

    def _gateways(self) -> AbstractContextManager[Substrate]:
        """Return what brings the gateways up, connects the hosts to them, and takes them down."""
        namespaces = {name: node.namespace for name, node in self._hosts.items()}
        if self.facts.name == GUEST:
            return guest_gateways(self.gateway_plan, self.folder, self.identifier, namespaces)
        gateways = unshaped_gateways if self.facts.name == UNSHAPED else kernel_gateways
        return gateways(self.gateway_plan, self.network, self.identifier, namespaces)

    def _settle_wan(self) -> None:
        """Reduce the WAN delays by what the idle path itself adds one-way: forwarding and late timers."""
        if not self.topology.wan:
            return
        trim_ns = measured_trim_ns(self.topology, self.stacks)
        self._substrate.settle(trim_ns)
        self.facts = replace(self.facts, trim_ns=trim_ns)

    def _stop(self) -> None:
        # Processes end first: a host's shell, while it lives, shows which network namespace is the host's. Then the
        # parts, from the last to the first, each even if an earlier one fails.
        with self._parts:
            end_processes(self.identifier)

    def spawn(
        self, host: str, argv: list[str], *, gpu: int | None = None, **popen: Unpack[SpawnOptions]
    ) -> subprocess.Popen[Any]:
        """Start any program on a host, with further arguments for ``Popen``. It ends with the testbed at the latest.

        If the hosts have real GPUs, the program sees the host's GPU number ``gpu``, or all of the host's if None.
        """
        name = self.topology.host(host).name
        popen["env"] = {**(popen.get("env") or os.environ), **self._gpu_environment(name, gpu)}
        return self._hosts[name].spawn(argv, **popen)

    def _gpu_environment(self, host: str, gpu: int | None = None) -> dict[str, str]:
        return {} if self.gpus is None else self.gpus.environment(host, gpu)

    def start_module(
        self, host: str, module: str, arguments: list[str], output: int, *, gpu: int | None = None
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on a host; its return value is the exit status.

        Its standard output and error go to the descriptor ``output``; its parent is ``module_parent``. It ends with the
        testbed at the latest. It sees the same GPUs as a program started by ``spawn``; in virtual time, none.
        """
        name = self.topology.host(host).name
        return self._hosts[name].start_module(module, arguments, output, self._gpu_environment(name, gpu))

    @property
    def module_parent(self) -> int:
        """PID of the process whose children ``start_module`` starts."""
        return self.network.module_parent

    def namespace(self, host: str) -> str:
        """Return the path of a host's network namespace."""
        return self._hosts[self.topology.host(host).name].namespace

    def use_tcp(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings on these hosts, by default on every one, for connections opened from now on.

        Raise MissingError for a congestion control that the kernel lacks.
        """
        self.stacks.use(settings, hosts)

    @property
    def changing(self) -> ChangingLinks | None:
        """The object that changes the WAN links, None if none changes. Until then all have their first conditions."""
        return self._substrate.changing() if self.topology.changes else None

    @property
    def failures(self) -> FailuresHere:
        """The way to let hosts and ranks fail."""
        return FailuresHere(self.gateway_plan, self.namespace, stays_up=self.facts.name == GUEST)

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every gateway port's qdiscs from the kernel, by ``datacenter interface``."""
        return self._substrate.read_qdiscs()

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the values of ``TCP_SYSCTLS`` of every host; None for one that the kernel does not have."""
        return self.stacks.read_sysctls()

    def read_offloads(self) -> dict[str, dict[str, Any]]:
        """Read sizes and offloads of every interface, by ``host interface`` and ``datacenter interface``."""
        return {**self.stacks.read_offloads(), **self._substrate.read_offloads()}

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port."""
        return self._substrate.read_counters()

    def tcp_state_reader(self) -> TcpStates | None:
        """Return a reader of the state of every connection, at both ends. Close it before the testbed ends.

        Return None where TCP is modelled: the kernel's state is then not that of the emulated connections.
        """
        return self.stacks.state_reader()

    def network_cpu_time_s(self) -> float | None:
        """Return the CPU seconds that carrying the network has taken so far, on one core.

        None if they cannot be separated from other CPU time.
        """
        return self._substrate.cpu_time_s()


def _timers(offer: Offer) -> Timers:
    if in_virtual_time():
        return Timers.VIRTUAL
    if offer.name == RELAY:
        # It divides rates at every instant: a shared rate lets no burst go.
        return Timers.VIRTUAL
    return Timers.GUEST if offer.name == GUEST else Timers.KERNEL


def measured_trim_ns(topology: Topology, stacks: TcpStacks) -> int:
    """Measure by how many ns to reduce every WAN delay, on the first WAN link. Raise SubstrateError if it is dead."""
    link = topology.wan[0]
    one, other = (topology.datacenter(name).hosts[0].name for name in link.between)
    echoes = stacks.echoes(one, other, _TRIM_PINGS_VIRTUAL if in_virtual_time() else _TRIM_PINGS)
    if math.isnan(echoes.shortest_ms):
        raise SubstrateError(f"{one} does not reach {other} across the WAN")
    # The shortest RTT, not the median: if the machine is busy at this moment, the median would shorten every link of
    # the run. In virtual time a hop adds nothing.
    return 0 if in_virtual_time() else wan_delay_trim_ns(echoes.shortest_ms, topology.rtt_ns(*link.between))


def wan_delay_trim_ns(idle_rtt_ms: float, rtt_ns: int) -> int:
    """Return by how many ns to reduce every WAN delay, from the idle RTT of a path of configured ``rtt_ns``.

    That is half of the excess of the RTT, never negative and at most ``MAX_TRIM_NS``. A larger excess is a fault of the
    path, which calibration must find, and not the cost of a few hops.
    """
    return min(MAX_TRIM_NS, max(0, round((idle_rtt_ms * 1e6 - rtt_ns) / 2)))


def usable_substrate(requested: str = "auto", *, shaped: bool = True) -> Offer:
    """Return the substrate that ``bring_up`` would use on this machine, without bringing anything up.

    Raise MissingError if the machine lacks netem or a program that hosts need, InputError for an unknown name.
    """
    chosen = choose_substrate(requested) if shaped else unshaped_offer()
    for program, package in missing_programs().items() if chosen.name != RELAY else ():
        raise MissingError(f"{program} is not installed: apt-get install {package}")
    return chosen


@contextmanager
def bring_up(
    topology: Topology,
    *,
    substrate: str = "auto",
    source: str = "",
    root: Path = STATE_ROOT,
    gpus: GpuAssignment | None = None,
    shaped: bool = True,
    dilation: float = 1.0,
    awake: bool = True,
) -> Iterator[Testbed]:
    """Bring a topology up, yield it as a testbed, and take it down completely.

    However this process ends, even killed, a supervisor then ends the testbed's processes and removes its record; also
    if taking it down is interrupted. In virtual time the guest's end does that.

    ``substrate`` is ``auto``, ``kernel``, ``guest`` or ``relay``. ``source`` describes the testbed's purpose to people.
    Programs on a host see the real GPUs that ``gpus`` assigns to it. If ``shaped`` is false, no link has a delay, a
    loss or a rate, ``substrate`` is ignored, and no other process can join. ``dilation`` is that of ``topology``; a
    relay dilates TCP's timers by it too. If ``awake``, idle processors stay awake meanwhile where this process may ask
    for it: they use power, which a network that is only there for somebody's next command is not worth.

    Raise InputError for a topology that is too large, MissingError if the machine lacks netem or a program, and
    SubstrateError or ReadBackError if bring-up fails.
    """
    check_can_be_emulated(topology)
    chosen = usable_substrate(substrate, shaped=shaped)
    if chosen.name == GUEST and len(topology.hosts) > MAX_GUEST_HOSTS:
        raise MissingError(
            f"the gateway guest carries {MAX_GUEST_HOSTS} hosts at most, this topology has {len(topology.hosts)}: "
            "take fewer hosts, or a kernel with sch_netem"
        )
    if chosen.name == RELAY:
        check_can_be_relayed(topology)
    # Whatever starts hosts calls programs of the system by their names.
    os.environ["PATH"] = system_path()
    ours = claim(source, root)
    with (
        nullcontext() if in_virtual_time() else Supervisor(ours.record.identifier, root=root) as supervisor,
        prompt_wakeups() if awake and not in_virtual_time() else nullcontext(False) as held,
    ):
        testbed = None
        try:
            testbed = Testbed(topology, ours, chosen, gpus)
            testbed._start(dilation, awake=held)
            yield testbed
        finally:
            if testbed is not None:
                testbed._stop()
            # Only after a complete stop: otherwise the record is needed to find what is left.
            ours.release()
            if supervisor is not None:
                supervisor.dismiss()
