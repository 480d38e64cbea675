"""Let links change on several machines: each has the courses of its own ports, and plays them on its own clock.

An order in time for every change would wait for the network between the machines. So each machine is told the instant
at which its courses begin, by its clock, beforehand. What it has changed by when is put on the driver's time line
afterwards, by all exchanges of times between the two until then.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wanbed.testbed.kernel.course_run import AppliedChange, CourseRecord
from wanbed.testbed.rack.clock_line import ClockLine
from wanbed.testbed.rack.driver.leasing import ask_all
from wanbed.testbed.rack.driver.rack_gate import CommonStart
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine_plan import MachinePlan

_LEAD_NS = 200_000_000
"""The time before their begin at which machines are told; it is doubled for machines that take longer to answer."""


class RackCourses:
    """The courses of all ports of ``plans`` on their ``machines``, which begin at an instant of ``start``."""

    def __init__(
        self, machines: Mapping[str, RackMachine], plans: Mapping[str, MachinePlan], start: CommonStart
    ) -> None:
        self._directions = {
            name: {(plan.gateway.datacenter, port.peer) for port in plan.gateway.wan_ports if port.course is not None}
            for name, plan in plans.items()
        }
        self._machines = [machines[name] for name, directions in self._directions.items() if directions]
        self._start = start
        self._begin_ns = 0

    def hold(self, time_ns: int) -> None:
        """Put every link in the conditions that it has at a time since training began, and read them back."""
        self._check()
        ask_all(self._machines, "hold_links", time_ns)

    def begin(self) -> int:
        """Let every course begin, and return when: a moment to come, on this process's monotonic clock."""
        self._check()
        ahead_ns = [machine.clock.measured() for machine in self._machines]
        lead_ns = _LEAD_NS
        while True:
            self._begin_ns = self._start.at_ns(lead_ns)
            pending = [
                machine.start_call("begin_links", self._begin_ns + ahead)
                for machine, ahead in zip(self._machines, ahead_ns, strict=True)
            ]
            for each in pending:
                each.result()
            if self._start.is_to_come():
                return self._begin_ns
            lead_ns *= 2

    def end(self) -> CourseRecord:
        """End the courses, put every link in its first conditions, read them back, and return what was changed.

        Its times are on this process's clock.
        """
        self._check()
        records: list[CourseRecord] = ask_all(self._machines, "end_links")
        lines = [machine.clock.line() for machine in self._machines]
        parts = [
            _Part(frozenset(self._directions[machine.name]), record, line)
            for machine, record, line in zip(self._machines, records, lines, strict=True)
        ]
        return _merged(self._begin_ns, parts)

    def _check(self) -> None:
        for machine in self._machines:
            machine.check()


class _Part(NamedTuple):
    """The changes that one machine has made to the links in these directions, by its clock."""

    directions: frozenset[tuple[str, str]]
    record: CourseRecord
    clock: ClockLine


def _merged(begin_ns: int, parts: Sequence[_Part]) -> CourseRecord:
    """Return what all machines have changed, of courses that began at ``begin_ns`` of the driver's clock.

    A change of a direction that several machines send in is made when the last of them has made it, and missed if one
    has missed it. One that did not come to all of them before the end is left out.
    """
    senders: dict[tuple[str, str], int] = defaultdict(int)
    made: dict[tuple[str, str, int], list[int | None]] = defaultdict(list)
    for part in parts:
        for direction in part.directions:
            senders[direction] += 1
        for change in part.record.changes:
            applied_ns = None
            if change.applied_ns is not None:
                applied_ns = part.clock.driver_ns(part.record.begin_ns + change.applied_ns) - begin_ns
            made[change.source, change.destination, change.due_ns].append(applied_ns)
    changes = [
        AppliedChange(source, destination, due_ns, _last(times_ns))
        for (source, destination, due_ns), times_ns in made.items()
        if len(times_ns) == senders[source, destination]
    ]
    return CourseRecord(
        begin_ns,
        tuple(sorted(changes, key=lambda change: (change.due_ns, change.source, change.destination))),
        all(part.record.real_time_priority for part in parts),
        max((part.clock.error_ns for part in parts), default=0),
    )


def _last(times_ns: Sequence[int | None]) -> int | None:
    """Return the last of these times, None if one is missing."""
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return max(known) if len(known) == len(times_ns) else None
