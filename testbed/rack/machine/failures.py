"""Let hosts and processes of one machine fail at a moment of its clock, and connect the hosts again."""

import signal
import time
from collections.abc import Mapping, Sequence

from wanbed.testbed.hosts.host import NetworkHost
from wanbed.testbed.hosts.host_attachment import HostEnd, connect_again, cut_off
from wanbed.testbed.rack.machine.lease_processes import LeaseProcesses
from wanbed.testbed.rack.machine_plan import MachinePlan


class MachineFailures:
    """The failures of a machine that carries ``hosts`` by ``plan``. Only emulated interfaces go down, never a card."""

    def __init__(self, plan: MachinePlan, hosts: Mapping[str, NetworkHost], processes: LeaseProcesses) -> None:
        self._plan = plan
        self._hosts = hosts
        self._processes = processes

    def fail(self, hosts: Sequence[str], numbers: Sequence[int], at_ns: int) -> int:
        """Cut hosts off, then kill processes, at this moment or now if it has passed. Return when that began."""
        ends = self._ends(hosts)
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        began_ns = time.monotonic_ns()
        # First of all, so that the kernel of a host that fails tells nobody of its processes' end.
        cut_off(ends)
        for number in numbers:
            self._processes.kill(number, signal.SIGKILL)
        return began_ns

    def connect_again(self, hosts: Sequence[str]) -> None:
        """Take the hosts' interfaces up again."""
        connect_again(self._ends(hosts))

    def _ends(self, hosts: Sequence[str]) -> list[HostEnd]:
        ports = {port.host: port for port in self._plan.host_ports}
        return [HostEnd(self._hosts[host].namespace, self._plan.gateway, ports[host], stays_up=False) for host in hosts]
