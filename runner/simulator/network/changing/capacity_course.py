"""Change the capacity of a resource at its times, while something is sent over it."""

from __future__ import annotations

from collections.abc import Callable

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.changing.changing_path import next_change_ns
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse


class CapacityCourse:
    """The capacity of one resource over time: ``bps_of`` the conditions of ``course``, given to ``change``.

    What waits when the capacity changes leaves at the new one. Its queue stands at the link's far end, as in the kernel
    (``wanbed.testbed.network.pair_rates``). So a change counts for what left a latency ago.
    """

    def __init__(
        self,
        events: EventQueue,
        course: LinkCourse,
        bps_of: Callable[[LinkConditions], int],
        change: Callable[[int, int], None],
        is_sending: Callable[[], bool],
    ) -> None:
        self._events = events
        self._course = course
        self._bps_of = bps_of
        self._change = change
        self._is_sending = is_sending
        self._met_ns = 0
        self._next_ns = next_change_ns(course, 0)
        self._armed = False

    def wake(self, now_ns: int) -> None:
        """Handle that something begins to send: have the present capacity, and follow the course from now on."""
        if self._armed or self._next_ns is None:
            return
        if self._due_ns(self._next_ns) <= now_ns:
            while (next_ns := self._next_ns) is not None and self._due_ns(next_ns) <= now_ns:
                self._meet(next_ns)
            self._give(now_ns)
        self._arm()

    def _due_ns(self, at_ns: int) -> int:
        return at_ns - self._course.at(at_ns - 1).latency_ns

    def _meet(self, at_ns: int) -> None:
        self._met_ns = at_ns
        self._next_ns = next_change_ns(self._course, at_ns)

    def _give(self, now_ns: int) -> None:
        self._change(self._bps_of(self._course.at(self._met_ns)), now_ns)

    def _arm(self) -> None:
        if self._next_ns is not None:
            self._armed = True
            due_ns = max(self._due_ns(self._next_ns), self._events.now_ns)
            self._events.at(due_ns, self._change_due, self._next_ns)

    def _change_due(self, now_ns: int, at_ns: int) -> None:
        self._armed = False
        self._meet(at_ns)
        self._give(now_ns)
        if self._is_sending():
            self._arm()
