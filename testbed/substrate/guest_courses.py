"""Let the gateway guest change its ports on time: it has their courses, and is told when they begin.

An order in time for every change would wait behind other requests, and in the host's scheduler. So the guest changes
its ports by its own clock. That is the machine's monotonic clock since the guest's start: a User-Mode Linux kernel
reads the time from its host, so the two run at the same rate, and differ by a constant. Exchanges measure it, before
and after the courses run; half the shortest round trip bounds its error.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from wanbed.testbed.kernel.changes.course_run import AppliedChange, CourseRecord

_EXCHANGES = 20
_MARGIN_NS = 50_000_000
"""The time before their begin at which the guest is told; it is doubled for a guest that takes longer to answer."""


class _Offset(NamedTuple):
    """The lead of the guest's clock over this process's, and a bound of the error."""

    ahead_ns: int
    error_ns: int


class GuestCourses:
    """The courses of a guest's ports. ``ask`` sends the guest a request and returns its answer."""

    def __init__(self, ask: Callable[[str], dict[str, Any]]) -> None:
        self._ask = ask
        self._begin_ns = 0
        self._offset = _Offset(0, 0)

    def hold(self, time_ns: int) -> None:
        """Put every port in its state at a time since training began, and read it back."""
        self._ask(f"hold {time_ns}")

    def begin(self) -> int:
        """Let every course begin, and return when: a moment ago, on this process's monotonic clock."""
        self._offset = self._measured_offset()
        margin_ns = _MARGIN_NS
        while True:
            self._begin_ns = time.monotonic_ns() + margin_ns
            self._ask(f"begin {self._begin_ns + self._offset.ahead_ns}")
            if (left_ns := self._begin_ns - time.monotonic_ns()) > 0:
                time.sleep(left_ns / 1e9)
                return self._begin_ns
            margin_ns *= 2

    def end(self) -> CourseRecord:
        """End the courses, put every port in its first state, read it back, and return what was changed."""
        answer = self._ask("end")
        changes = tuple(AppliedChange(*each) for each in answer["changes"])
        after = self._measured_offset()
        apart_ns = abs(after.ahead_ns - self._offset.ahead_ns)
        error_ns = max(self._offset.error_ns, after.error_ns) + apart_ns
        return CourseRecord(self._begin_ns, changes, answer["real_time_priority"], error_ns)

    def _measured_offset(self) -> _Offset:
        found = []
        for _ in range(_EXCHANGES):
            asked_ns = time.monotonic_ns()
            guest_ns = self._ask("clock")["now_ns"]
            answered_ns = time.monotonic_ns()
            found.append(_Offset(guest_ns - (asked_ns + answered_ns) // 2, (answered_ns - asked_ns) // 2))
        return min(found, key=lambda offset: offset.error_ns)
