"""Say what a substrate does with links that change."""

from typing import Protocol

from wanbed.testbed.kernel.changes.course_run import CourseRecord


class ChangingLinks(Protocol):
    """The WAN links of a testbed that change. Outside ``begin`` to ``end`` each has its first conditions.

    Every method raises SubstrateError or ReadBackError on failure.
    """

    def hold(self, time_ns: int) -> None:
        """Put every link in the conditions that it has at a time since training began, and read them back."""

    def begin(self) -> int:
        """Let every course begin, and return when: about now, on this process's monotonic clock."""

    def end(self) -> CourseRecord:
        """End the courses, put every link in its first conditions, read them back, and return what was changed."""
