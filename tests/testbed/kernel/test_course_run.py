"""Changes on time, with ports that only remember theirs."""

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.until import until_within
from wanbed.testbed.kernel import course_run
from wanbed.testbed.kernel.course_run import CourseRun, KernelCourses, punctual, wait_until
from wanbed.testbed.kernel.qdiscs import ReadBackError
from wanbed.testbed.network.gateway_plan import NetemPlan, PortCourse, PortState

until = partial(until_within, 60)

MS = 10**6
NEAR, FAR = (PortState(NetemPlan(delay_ns, 1000), None) for delay_ns in (10 * MS, 40 * MS))


class Port:
    """A port that remembers its states."""

    def __init__(self, *steps_ns: int, period_ns: int | None = None) -> None:
        numbered = tuple((at_ns, number % 2) for number, at_ns in enumerate(steps_ns))
        self.course = PortCourse((NEAR, FAR), numbered, period_ns)
        self.source, self.destination = "east", "west"
        self.states: list[PortState] = []
        self.prepared: list[PortState] = []
        self.held: Callable[[], PortState] = lambda: self.states[-1]

    def prepare(self, state: PortState) -> None:
        self.prepared.append(state)

    def put(self, state: PortState) -> None:
        self.states.append(state)

    def check(self, state: PortState) -> None:
        if self.held() != state:
            raise ReadBackError("east to west: the kernel holds something else")


class Ports:
    def __init__(self, *ports: Port) -> None:
        self.ports: Any = list(ports)

    def hold(self, time_ns: int) -> None:
        for port in self.ports:
            port.put(port.course.at(time_ns))


def run_until(run: CourseRun, holds: Callable[[], bool]) -> Any:
    until(holds)
    return run.stop()


def test_every_change_is_made_when_it_is_due_and_never_before() -> None:
    # Far apart: on a busy machine the next one would come first.
    due_ns = [50 * MS, 150 * MS, 350 * MS]
    port: Any = Port(0, *due_ns)
    changes = run_until(CourseRun([port], time.monotonic_ns()), lambda: len(port.states) == 3)
    assert [change.due_ns for change in changes] == due_ns
    assert all(change.applied_ns is not None and change.applied_ns >= change.due_ns for change in changes)
    assert port.states == [FAR, NEAR, FAR]
    assert port.prepared[:1] == [FAR]


def test_a_course_that_repeats_goes_on_until_it_is_stopped() -> None:
    port: Any = Port(0, 2 * MS, period_ns=4 * MS)
    changes = run_until(CourseRun([port], time.monotonic_ns()), lambda: len(port.states) >= 4)
    assert [change.due_ns // MS for change in changes[:4]] == [2, 4, 6, 8]


def test_a_change_that_is_overtaken_by_the_next_is_noted_as_never_made() -> None:
    port: Any = Port(0, 1 * MS, 2 * MS, 3 * MS)
    begun_long_ago_ns = time.monotonic_ns() - 10 * MS
    changes = run_until(CourseRun([port], begun_long_ago_ns), lambda: bool(port.states))
    assert [change.applied_ns is None for change in changes] == [True, True, False]
    assert port.states == [FAR]


def test_ports_that_change_at_the_same_time_are_all_changed_before_any_is_read_back() -> None:
    one: Any = Port(0, 1 * MS)
    other: Any = Port(0, 1 * MS)
    seen: list[int] = []

    def held() -> PortState:
        seen.append(len(other.states))
        return FAR

    one.held = held
    run_until(CourseRun([one, other], time.monotonic_ns()), lambda: bool(seen))
    assert seen == [1]


def test_all_changes_that_are_due_together_or_soon_are_prepared_before_the_first_is_made() -> None:
    one: Any = Port(0, 20 * MS, 40 * MS)
    other: Any = Port(0, 20 * MS)
    prepared: list[int] = []
    put = one.put

    def put_after_looking(state: PortState) -> None:
        prepared.append(len(one.prepared) + len(other.prepared))
        put(state)

    one.put = put_after_looking
    run_until(CourseRun([one, other], time.monotonic_ns()), lambda: bool(prepared))
    assert prepared[0] == 3


def test_changes_that_are_overtaken_need_no_preparation() -> None:
    port: Any = Port(*range(0, 1000 * MS, MS))
    begun_long_ago_ns = time.monotonic_ns() - 3600 * 1000 * MS
    changes = run_until(CourseRun([port], begun_long_ago_ns), lambda: bool(port.states))
    assert len(changes) == 999
    assert len(port.prepared) < 100


def test_what_is_read_back_as_something_else_is_raised_when_the_courses_end() -> None:
    port: Any = Port(0, 1 * MS)
    port.held = lambda: NEAR
    courses = KernelCourses(Ports(port))  # type: ignore[arg-type]
    courses.begin()
    until(lambda: bool(port.states))
    with pytest.raises(ReadBackError, match="something else"):
        courses.end()
    assert port.states[-1] == NEAR, "the first state, all the same"


def test_courses_that_end_leave_every_port_in_its_first_state() -> None:
    port: Any = Port(0, 1 * MS, 3600 * 1000 * MS)
    courses = KernelCourses(Ports(port))  # type: ignore[arg-type]
    begin_ns = courses.begin()
    until(lambda: bool(port.states))
    record = courses.end()
    assert record.begin_ns == begin_ns
    assert [change.due_ns for change in record.changes] == [1 * MS]
    assert port.states == [FAR, NEAR]


def test_courses_that_begin_anew_begin_in_their_first_state() -> None:
    port: Any = Port(0, 1 * MS, 3600 * 1000 * MS)
    courses = KernelCourses(Ports(port))  # type: ignore[arg-type]
    courses.begin()
    until(lambda: bool(port.states))
    courses.begin_at(time.monotonic_ns() + 3600 * 1000 * MS)
    assert port.states == [FAR, NEAR]
    assert courses.end().changes == ()


def test_it_goes_on_at_its_time_and_never_before() -> None:
    for ahead_ns in (-5 * MS, 0, 500_000, 3 * MS):
        due_ns = time.monotonic_ns() + ahead_ns
        assert not wait_until(due_ns, threading.Event())
        assert time.monotonic_ns() >= due_ns


@pytest.mark.parametrize("left_ms", [3_600_000, 1])
def test_it_goes_on_at_once_when_it_is_stopped(left_ms: int) -> None:
    stopped = threading.Event()
    stopped.set()
    assert wait_until(time.monotonic_ns() + left_ms * MS, stopped)


def test_in_virtual_time_it_only_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a thread that watches the clock would watch it for ever: nothing moves the clock but sleep."""
    clock_ns = 0

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal clock_ns
            assert timeout is not None
            # Each sleep is a rounding error short, until the last.
            clock_ns += max(1, round(timeout * 1e9) - 3)
            return False

    monkeypatch.setattr(course_run, "in_virtual_time", lambda: True)
    monkeypatch.setattr(course_run.time, "monotonic_ns", lambda: clock_ns)
    assert not wait_until(5 * MS, Stopped())
    assert 5 * MS <= clock_ns <= 5 * MS + 3


def test_it_has_a_real_time_priority_where_that_is_allowed_and_says_so_where_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[bool, int]] = []

    def run() -> None:
        with punctual() as real_time:
            told.append((real_time, os.sched_getscheduler(0)))

    def in_a_thread() -> None:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    in_a_thread()

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    in_a_thread()
    (allowed, policy), refused = told
    assert allowed == (policy == os.SCHED_FIFO)
    assert refused == (False, os.SCHED_OTHER)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "this thread keeps its own"


def test_the_interpreter_switches_threads_as_before_afterwards() -> None:
    before_s = sys.getswitchinterval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_setscheduler", lambda *_: None)
        with punctual():
            assert sys.getswitchinterval() < before_s
    assert sys.getswitchinterval() == before_s
