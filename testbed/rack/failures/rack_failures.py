"""Let hosts and processes on several machines fail, all at one instant of the driver's clock."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine_handle import MachineLostError

LEAD_NS = 50_000_000
"""How long before its moment a failure is sent to its machines, so that it has reached all of them by then."""


class MachineMoment(NamedTuple):
    """A moment on the clock of the machine that carries ``host``, less what that was ahead when the trial began."""

    host: str
    time_ns: int


class RackFailures:
    """The failures of a network over ``machines``; ``machine_of`` has the machine of each host."""

    lead_ns = LEAD_NS

    def __init__(self, machines: Mapping[str, RackMachine], machine_of: Mapping[str, str]) -> None:
        self._machines = machines
        self._machine_of = machine_of

    def fail(self, hosts: Collection[str], processes: Sequence[tuple[str, int]], at_ns: int) -> MachineMoment | None:
        """Cut hosts off and kill processes, each a host and a number on its machine, at a moment of this clock.

        Return when it happened first; None if there was nothing to fail. Raise MachineLostError if a machine has gone.
        """
        cut: dict[str, list[str]] = defaultdict(list)
        killed: dict[str, list[int]] = defaultdict(list)
        for host in hosts:
            cut[self._machine_of[host]].append(host)
        for host, number in processes:
            killed[self._machine_of[host]].append(number)
        hit = {self._machine_of[host]: host for host in (*hosts, *(host for host, _ in processes))}
        pending = [
            (host, machine, machine.start_call("fail", cut[name], killed[name], at_ns + machine.clock.ahead_ns))
            for name, host in hit.items()
            for machine in [self._machines[name]]
        ]
        moments = [MachineMoment(host, each.result() - machine.clock.ahead_ns) for host, machine, each in pending]
        return min(moments, key=lambda moment: moment.time_ns, default=None)

    def connect_again(self, hosts: Collection[str]) -> None:
        """Take hosts' interfaces up again. A machine that has gone has none."""
        by_machine: dict[str, list[str]] = defaultdict(list)
        for host in hosts:
            by_machine[self._machine_of[host]].append(host)
        for name, own in by_machine.items():
            with suppress(MachineLostError):
                self._machines[name].call("connect_again", own)
