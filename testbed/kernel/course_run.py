"""Change ports when their courses say so, to within some 100 us also while others compute, and note when that was done.

Three things make a thread late: the kernel's slack for timers, other threads that want the processor, and the time that
a sleeping processor, or a sleeping gateway guest, takes to wake. Against them the thread has a slack of 1 ns, a
real-time priority, and wakes a millisecond early to watch the clock.
"""

import ctypes
import heapq
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from wanbed.testbed.kernel.changing_ports import ChangingPort, ChangingPorts
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.network.gateway_plan import PortState

_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1
_SWITCH_S = 0.0005
"""The time for which another thread of this process may compute before the punctual one goes on."""
_EARLY_NS = 1_000_000
_PRIORITY = 1
"""The lowest real-time priority: above all that have none."""


@contextmanager
def punctual() -> Iterator[bool]:
    """Make this thread a punctual one within the block. Yield whether its priority is a real-time one.

    Without the right to that (CAP_SYS_NICE, or RLIMIT_RTPRIO) the thread keeps its priority.
    """
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
    try:
        yield _with_real_time_priority()
    finally:
        sys.setswitchinterval(switch_s)


def _with_real_time_priority() -> bool:
    try:
        # 0 is this thread, not this process.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        return False
    return True


def wait_until(time_ns: int, stopped: threading.Event) -> bool:
    """Return False at a time of the monotonic clock, or True as soon as ``stopped`` is set.

    In virtual time the clock does not move while a thread watches it, and a sleep ends exactly when it should.
    """
    early_ns = 0 if in_virtual_time() else _EARLY_NS
    if stopped.wait((time_ns - early_ns - time.monotonic_ns()) / 1e9):
        return True
    while (left_ns := time_ns - time.monotonic_ns()) > 0:
        if early_ns == 0:
            # A wait may end a rounding error early.
            if stopped.wait(left_ns / 1e9):
                return True
        elif stopped.is_set():
            return True
    return False


_PREPARED_NS = 50_000_000
"""Changes that follow each other within this time are all prepared before the first of them is made."""


class AppliedChange(NamedTuple):
    """A change of the port from one datacenter to another, in nanoseconds since its course began.

    It was due at ``due_ns`` and the kernel had made it at ``applied_ns``: None if the next one came first.
    """

    source: str
    destination: str
    due_ns: int
    applied_ns: int | None


@dataclass(frozen=True)
class CourseRecord:
    """The changes made while courses ran, which began at ``begin_ns`` of this process's monotonic clock.

    Times are known within ``clock_error_ns``. ``real_time_priority`` says whether what made the changes had one.
    """

    begin_ns: int
    changes: tuple[AppliedChange, ...]
    real_time_priority: bool
    clock_error_ns: int = 0


class _Due(NamedTuple):
    due_ns: int
    number: int
    state: PortState


class CourseRun:
    """Change ``ports`` from ``begin_ns`` on, a time of the monotonic clock, in a thread of its own until ``stop``.

    Changes that are due at the same time are made at once, and then read back. If a port's next change is due before
    the last one could be made, only the next one is made. ``real_time_priority`` says what the thread was given.
    """

    def __init__(self, ports: Sequence[ChangingPort], begin_ns: int) -> None:
        self._ports = ports
        self._begin_ns = begin_ns
        self._made: list[AppliedChange] = []
        self._stopped = threading.Event()
        self.real_time_priority = False
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="CourseRun", daemon=True)
        self._thread.start()

    def stop(self) -> tuple[AppliedChange, ...]:
        """End the thread, and return what it has changed. Raise its error."""
        self._stopped.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault
        return tuple(self._made)

    def _run(self) -> None:
        try:
            with punctual() as self.real_time_priority:
                self._follow()
        except Exception as fault:
            # Raised again in stop.
            self._fault = fault

    def _follow(self) -> None:
        coming = _Coming(self._ports)
        while (due_ns := coming.first_due_ns()) is not None:
            if wait_until(self._begin_ns + due_ns, self._stopped):
                return
            now_ns = time.monotonic_ns() - self._begin_ns
            due: dict[int, _Due] = {}
            for each in coming.due_at(now_ns):
                if (missed := due.get(each.number)) is not None:
                    self._note(missed, None)
                due[each.number] = each
            self._make(list(due.values()))

    def _make(self, due: Sequence[_Due]) -> None:
        for each in due:
            self._ports[each.number].put(each.state)
            self._note(each, time.monotonic_ns() - self._begin_ns)
        for each in due:
            self._ports[each.number].check(each.state)

    def _note(self, change: _Due, applied_ns: int | None) -> None:
        port = self._ports[change.number]
        self._made.append(AppliedChange(port.source, port.destination, change.due_ns, applied_ns))


class _Coming:
    """The changes that come, in order. Those of the next moments are prepared."""

    def __init__(self, ports: Sequence[ChangingPort]) -> None:
        self._ports = ports
        self._all = heapq.merge(*(_course_of(number, port) for number, port in enumerate(ports)))
        self._unprepared = next(self._all, None)
        self._prepared: deque[_Due] = deque()

    def first_due_ns(self) -> int | None:
        """Return when the next change is due, None if none comes; prepare it, and others that follow soon."""
        if not self._prepared:
            self._prepare_next()
        if not self._prepared:
            return None
        first_ns = self._prepared[0].due_ns
        while self._unprepared is not None and self._unprepared.due_ns <= first_ns + _PREPARED_NS:
            self._prepare_next()
        return first_ns

    def due_at(self, now_ns: int) -> Iterator[_Due]:
        """Yield the changes that are due, and drop them."""
        while self._prepared and self._prepared[0].due_ns <= now_ns:
            yield self._prepared.popleft()
        # Of changes that come faster than they can be made, only the last one is: no other needs to be prepared.
        while not self._prepared and self._unprepared is not None and self._unprepared.due_ns <= now_ns:
            due, self._unprepared = self._unprepared, next(self._all, None)
            yield due

    def _prepare_next(self) -> None:
        if (coming := self._unprepared) is not None:
            self._ports[coming.number].prepare(coming.state)
            self._prepared.append(coming)
            self._unprepared = next(self._all, None)


def _course_of(number: int, port: ChangingPort) -> Iterator[_Due]:
    return (_Due(due_ns, number, state) for due_ns, state in port.course.changes())


class KernelCourses:
    """The courses of all ports that this process's kernel shapes."""

    def __init__(self, ports: ChangingPorts) -> None:
        self._ports = ports
        self._begin_ns = 0
        self._running: CourseRun | None = None

    def hold(self, time_ns: int) -> None:
        """Put every port in its state at a time since training began. Raise ReadBackError if one has another then."""
        self._ports.hold(time_ns)

    def begin(self) -> int:
        """Let every course begin now, and return the time of the monotonic clock."""
        now_ns = time.monotonic_ns()
        self.begin_at(now_ns)
        return now_ns

    def begin_at(self, begin_ns: int) -> None:
        """Let every course begin at a time of the monotonic clock, in place of those that run."""
        if self._stop():
            # They may have been told too late when to begin, and have changed already.
            self.hold(0)
        self._begin_ns = begin_ns
        self._running = CourseRun(self._ports.ports, begin_ns)

    def end(self) -> CourseRecord:
        """End the courses, put every port in its first state, and return what was changed.

        Raise ReadBackError, also for a change while the courses ran.
        """
        ran = self._running
        try:
            changes = self._stop()
        finally:
            self.hold(0)
        return CourseRecord(self._begin_ns, changes, ran is not None and ran.real_time_priority)

    def close(self) -> None:
        """End the courses, of ports that are about to go."""
        with suppress(Exception):
            self._stop()

    def _stop(self) -> tuple[AppliedChange, ...]:
        running, self._running = self._running, None
        return () if running is None else running.stop()
