"""Say what runs and measurements need of a testbed that is up, on one machine or over several."""

import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.hosts.host import SpawnOptions
from wanbed.testbed.hosts.host_process import HostProcess
from wanbed.testbed.hosts.tcp_stacks import TcpStacks
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.tcp_state import TcpStates
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.substrate.changing_links import ChangingLinks
from wanbed.testbed.substrate.substrate import SubstrateFacts

if TYPE_CHECKING:
    from wanbed.testbed.rack.driver.remote_process import RemoteProgram
    from wanbed.testbed.rack.rack_testbed import RackTestbed


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
        """What every process of the testbed on this machine has in its environment."""

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
        """What carries the network."""

    @property
    def reason(self) -> str:
        """Why that was chosen."""

    @property
    def rack(self) -> "RackTestbed | None":
        """The testbed itself if its hosts are on machines of a rack, None if they are on this machine."""

    @property
    def changing(self) -> ChangingLinks | None:
        """What changes the WAN links, None if none changes."""

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

    def network_cpu_time_s(self) -> float | None:
        """Return the CPU seconds that carrying the network has taken so far, on one core, None if unknown."""
