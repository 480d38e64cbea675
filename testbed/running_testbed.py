"""Say what runs and measurements need of a testbed that is up, on one machine or over several."""

import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.gpus.gpus import ReadsGpus
from wanbed.testbed.hosts.failures import Failures
from wanbed.testbed.hosts.files_elsewhere import Mirror, SharedDisk
from wanbed.testbed.hosts.host import HostProcess, SpawnOptions
from wanbed.testbed.hosts.host_environment import HostHome
from wanbed.testbed.hosts.manifest_facts import ManifestFacts
from wanbed.testbed.hosts.start_gate import Gate
from wanbed.testbed.hosts.tcp_stacks import TcpStacks
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.processors import CpuTimes
from wanbed.testbed.kernel.tcp import TcpStates
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.substrate.substrate import ChangingLinks, SubstrateFacts

if TYPE_CHECKING:
    from wanbed.testbed.rack.driver.machine_clock import TimeLine
    from wanbed.testbed.rack.driver.machine_files import Written
    from wanbed.testbed.rack.driver.rack_machine import RemoteProgram


class RunningTestbed(Protocol):
    """Hosts in emulated datacenters. ``wanbed.testbed.testbed.Testbed`` says more of what has the same name there.

    ``folder`` is a folder of this machine, which ends with the testbed. ``gateway_plan`` is that of the whole network.
    """

    @property
    def topology(self) -> Topology:
        """The network that is up."""

    @property
    def gpus(self) -> GpuAssignment | None:
        """The real GPUs of every host, None if programs see whatever their machine shows."""

    @property
    def identifier(self) -> str:
        """The mark that every process of the testbed on this machine has in its environment."""

    @property
    def folder(self) -> Path:
        """The testbed's folder."""

    @property
    def addresses(self) -> AddressBook:
        """The addresses of all hosts."""

    @property
    def gateway_plan(self) -> GatewayPlan:
        """The plan of all gateways."""

    @property
    def mtu_bytes(self) -> int:
        """The MTU of every emulated interface."""

    @property
    def stacks(self) -> TcpStacks:
        """The TCP of all hosts."""

    @property
    def facts(self) -> SubstrateFacts:
        """The facts of the substrate, which carries the network."""

    @property
    def reason(self) -> str:
        """Why that was chosen."""

    @property
    def starts_slowly(self) -> bool:
        """True if processes are started one after the other over a network, so that each has to wait for others."""

    @property
    def changing(self) -> ChangingLinks | None:
        """The object that changes the WAN links, None if none changes."""

    @property
    def failures(self) -> Failures:
        """The way to let hosts and ranks fail."""

    @property
    def module_parent(self) -> int:
        """PID of the process whose children ``start_module`` starts."""

    def spawn(
        self, host: str, argv: list[str], *, gpu: int | None = None, **popen: Unpack[SpawnOptions]
    ) -> "subprocess.Popen[Any] | RemoteProgram":
        """Start any program on a host. It ends with the testbed at the latest."""

    def start_module(
        self, host: str, module: str, arguments: list[str], output: int, *, gpu: int | None = None
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on a host; its return value is the exit status."""

    def home(self, host: str) -> HostHome:
        """Return what programs find on a host."""

    def gate(
        self,
        folder: Path,
        hosts: Sequence[str],
        pipes: tuple[str, str],
        *,
        begin: Callable[[], None] = lambda: None,
        opens_itself: bool = True,
    ) -> Gate:
        """Return a gate in the new folder ``folder``, below this testbed's, for a rank on each of these hosts.

        A host may be named several times. ``pipes`` are as for ``GatePipes``. ``begin`` is called when all ranks have
        come, just before the gate is opened for them. If it does not ``open_itself``, only ``open`` does.
        """

    def begin_trial(self, epoch_ns: int) -> None:
        """Begin a trial whose times count from ``epoch_ns`` of this process's clock.

        Raise MachineLostError if a machine has gone.
        """

    def time_line(self) -> "TimeLine | None":
        """Return what puts the hosts' times of the trial until now on this machine's clock, None if all are of that."""

    def end_trial(self) -> "TimeLine | None":
        """End the trial, and return its time line."""

    def check(self) -> None:
        """Raise MachineLostError if a machine that carries hosts has gone."""

    def mirror(self, folder: Path) -> Mirror:
        """Return copies of what processes on other machines write to this folder, below this testbed's.

        None is made yet.
        """

    def shared(self, folder: Path) -> SharedDisk:
        """Return this folder, below this testbed's, as processes on other machines have it."""

    def take_written(self, folder: Path, name: str, most_bytes: int) -> "Written | None":
        """Return what users' programs have written on other machines since the last call, fetched below ``folder``.

        It is None where they have written to their own files. ``name`` and ``most_bytes`` are as for
        ``wanbed.testbed.rack.driver.machine_files.fetched``. Raise MachineLostError if a machine has gone.
        """

    def namespace(self, host: str) -> str:
        """Return the path of a host's network namespace, where ``stacks.opens_sockets``."""

    def use_tcp(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings on these hosts, by default on every one, for connections opened from now on."""

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every gateway port's qdiscs from the kernel."""

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the TCP sysctls of every host."""

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every interface."""

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN link."""

    def tcp_state_reader(self) -> TcpStates | None:
        """Return a reader of the state of every connection, at both ends. Close it before the testbed ends."""

    def cpu_times(self) -> Mapping[str, CpuTimes]:
        """Read the CPU times of every machine by its name, which is "" for this one where it carries all hosts."""

    def rdma_sent_bytes(self) -> Mapping[str, int]:
        """Read how much each port of an RDMA device has sent since it came up, by its name behind its machine's."""

    def gpu_reader(self) -> ReadsGpus | None:
        """Return a reader of the GPUs that hosts own, None if they own none. Close it before the testbed ends."""

    def manifest_facts(self) -> ManifestFacts:
        """Return the entries of the manifest about the machines that carry hosts, none if that is this one alone."""

    def network_cpu_time_s(self) -> float | None:
        """Return the CPU seconds that carrying the network has taken so far, on one core, None if unknown."""
