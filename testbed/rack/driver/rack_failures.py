"""Let hosts and processes on several machines fail, all at one instant of the driver's clock."""

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress

from wanbed.testbed.hosts.failures import Applied, Killable
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine_handle import MachineLostError

LEAD_NS = 50_000_000
"""The time before its moment at which a failure is sent to its machines, so that it has reached all of them by then."""


class RackFailures:
    """The failures of a network over ``machines``; ``machine_of`` has the machine of each host."""

    lead_ns = LEAD_NS

    def __init__(self, machines: Mapping[str, RackMachine], machine_of: Mapping[str, str]) -> None:
        self._machines = machines
        self._machine_of = machine_of

    def fail(self, hosts: Collection[str], ranks: Mapping[int, str], processes: Killable | None, at_ns: int) -> Applied:
        """Cut hosts off, then kill ``ranks``, which have their hosts, at a moment of this clock.

        A rank that has no process any more is passed by. Return the first moment at which it happened, by the clock of
        its machine less that clock's lead when the trial began; now if there was nothing to fail. Raise
        MachineLostError if a machine has gone.
        """
        cut: dict[str, list[str]] = defaultdict(list)
        killed: dict[str, list[int]] = defaultdict(list)
        for host in hosts:
            cut[self._machine_of[host]].append(host)
        numbers = [] if processes is None else [(host, processes.pid(rank)) for rank, host in ranks.items()]
        for host, number in numbers:
            killed[self._machine_of[host]].append(number)
        hit = {self._machine_of[host]: host for host in (*hosts, *(host for host, _ in numbers))}
        pending = [
            (host, machine, machine.start_call("fail", cut[name], killed[name], at_ns + machine.clock.ahead_ns))
            for name, host in hit.items()
            for machine in [self._machines[name]]
        ]
        applied = [Applied(each.result() - machine.clock.ahead_ns, host) for host, machine, each in pending]
        return min(applied, key=lambda each: each.time_ns, default=Applied(time.monotonic_ns(), None))

    def connect_again(self, hosts: Collection[str]) -> None:
        """Take hosts' interfaces up again. A machine that has gone has none."""
        by_machine: dict[str, list[str]] = defaultdict(list)
        for host in hosts:
            by_machine[self._machine_of[host]].append(host)
        for name, own in by_machine.items():
            with suppress(MachineLostError):
                self._machines[name].call("connect_again", own)
