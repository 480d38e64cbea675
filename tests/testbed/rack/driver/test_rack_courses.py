"""The driver's side of courses that machines follow by their own clocks."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.kernel.course_run import AppliedChange, CourseRecord
from wanbed.testbed.kernel.qdiscs import ReadBackError
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.clock_line import ClockLine
from wanbed.testbed.rack.driver.rack_courses import RackCourses
from wanbed.testbed.rack.driver.rack_gate import CommonStart
from wanbed.testbed.rack.machine_plan import MachinePlan, Underlay, plan_machines

AHEAD_NS = {"a": 7 * 10**12, "b": -3 * 10**9, "c": 0}
MACHINE_OF = {"east-0": "a", "east-1": "b", "west-0": "c"}
ERROR_NS = 40


class Answer:
    def __init__(self, result: Any) -> None:
        self._result = result

    def result(self, timeout_s: float | None = None) -> Any:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class Clock:
    """A clock that is known within ``ERROR_NS``."""

    def __init__(self, ahead_ns: int) -> None:
        self.ahead_ns = ahead_ns

    def measured(self) -> int:
        return self.ahead_ns

    def line(self) -> ClockLine:
        return ClockLine(0, self.ahead_ns, 0.0, ERROR_NS + self.ahead_ns % 2)


class Machine:
    """A machine that is told when to begin, and then has made ``changes``; the first answers take ``slow_s``."""

    def __init__(self, name: str, *changes: AppliedChange, slow_s: tuple[float, ...] = ()) -> None:
        self.name, self.handle = name, self
        self.clock = Clock(AHEAD_NS[name])
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fault: Exception | None = None
        self._changes, self._slow_s = changes, list(slow_s)

    @property
    def begins_ns(self) -> list[int]:
        return [arguments[0] for method, arguments in self.calls if method == "begin_links"]

    def check(self) -> None: ...

    def start_call(self, method: str, *arguments: Any) -> Answer:
        self.calls.append((method, arguments))
        if method == "begin_links":
            time.sleep(self._slow_s.pop(0) if self._slow_s else 0)
        record = CourseRecord(self.begins_ns[-1] if self.begins_ns else 0, self._changes, self.name != "b")
        return Answer(self.fault or (record if method == "end_links" else None))


def plans(*, both_ways: bool = True) -> dict[str, MachinePlan]:
    events = {"events": [{"at": "1s", "rate": "50Mbit"}]}
    link = {"latency": "5ms", "rate": "100Mbit"}
    document = {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}],
        "links": [
            {"from": "east", "to": "west", **link, **events},
            {"from": "west", "to": "east", **link, **(events if both_ways else {})},
        ],
    }
    topology: Topology = resolve_topology(parse_model(TopologySpec, document, "test"))
    underlays = {name: Underlay(f"192.0.2.{number}", "eth0", 1500) for number, name in enumerate("abc", start=1)}
    return plan_machines(topology, 1, 1, MACHINE_OF, underlays)


def courses(*machines: Machine, both_ways: bool = True) -> RackCourses:
    return RackCourses(cast("Any", {each.name: each for each in machines}), plans(both_ways=both_ways), CommonStart())


def test_every_machine_is_told_the_same_instant_on_its_own_clock_before_it_comes() -> None:
    machines = [Machine(name) for name in "abc"]
    begin_ns = courses(*machines).begin()
    assert begin_ns > time.monotonic_ns()
    assert [each.begins_ns[-1] - begin_ns for each in machines] == [AHEAD_NS[each.name] for each in machines]


def test_of_a_machine_that_answers_late_all_are_told_a_later_instant() -> None:
    machines = [Machine("a"), Machine("b", slow_s=(0.25,)), Machine("c")]
    begin_ns = courses(*machines).begin()
    assert all(len(each.begins_ns) >= 2 for each in machines)
    assert {each.begins_ns[-1] - AHEAD_NS[each.name] for each in machines} == {begin_ns}


def test_a_machine_whose_links_do_not_change_is_not_asked() -> None:
    machines = [Machine(name) for name in "abc"]
    changing = courses(*machines, both_ways=False)
    changing.hold(3)
    assert [each.calls for each in machines] == [[("hold_links", (3,))], [("hold_links", (3,))], []]


def change(source: str, due_ns: int, applied_ns: int | None) -> AppliedChange:
    return AppliedChange(source, "west" if source == "east" else "east", due_ns, applied_ns)


def test_a_change_that_several_machines_make_is_made_when_the_last_has_and_missed_if_one_has() -> None:
    one = Machine("a", change("east", 5, 70), change("east", 900, None), change("east", 2000, 2010))
    other = Machine("b", change("east", 5, 30), change("east", 900, 950))
    west = Machine("c", change("west", 5, 60))
    changing = courses(one, other, west)
    begin_ns = changing.begin()
    record = changing.end()
    assert record.begin_ns == begin_ns
    # The end came before the machine ``b`` had made the last one.
    assert record.changes == (change("east", 5, 70), change("west", 5, 60), change("east", 900, None))
    assert not record.real_time_priority
    assert record.clock_error_ns == ERROR_NS


def test_times_are_on_the_drivers_clock_by_the_line_of_the_machines() -> None:
    drifting = Machine("c", change("west", 10**9, 10**9))
    changing = courses(Machine("a"), Machine("b"), drifting)
    begin_ns = changing.begin()
    # It was exact when the courses began, and is a millisecond ahead one second later.
    line = ClockLine(begin_ns, 0, 1e-3, 77)
    drifting.clock = cast("Any", SimpleNamespace(line=lambda: line))
    record = changing.end()
    (made,) = record.changes
    assert made.applied_ns == pytest.approx(10**9 / 1.001, abs=2)
    assert record.clock_error_ns == 77


def test_a_link_that_is_not_as_it_should_be_names_the_machine_and_the_others_end_too() -> None:
    machines = [Machine(name) for name in "abc"]
    changing = courses(*machines)
    changing.begin()
    machines[1].fault = ReadBackError("east to west: refused")
    with pytest.raises(ReadBackError, match=r"^machine b: east to west: refused$"):
        changing.end()
    assert all(each.calls[-1][0] == "end_links" for each in machines)
