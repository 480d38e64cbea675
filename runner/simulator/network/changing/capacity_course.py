"""Change the capacity of a resource at its times, while something is sent over it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from runner.simulator.event_queue import EventQueue
from runner.simulator.network.changing.changing_path import next_change_ns
from testbed.network.links.link_conditions import LinkConditions
from testbed.network.links.link_course import LinkCourse


class CapacityCourse:
    """The capacity of one resource over time: ``bps_of`` the conditions of ``course``, given to ``change``.

    A trunk changes for what waits in it too: its queue stands at the link's far end, so a change counts for what left
    a latency ago (``is_trunk``). Any other resource is a queue at the near end: what it has accepted leaves at the rate
    that held then. ``waiting`` gives how much that is, in bits x 10^9, and at which rate it leaves now.
    """

    def __init__(
        self,
        events: EventQueue,
        course: LinkCourse,
        bps_of: Callable[[LinkConditions], int],
        change: Callable[[int, int], None],
        *,
        waiting: Callable[[int], tuple[int, int]],
        is_sending: Callable[[], bool],
        is_trunk: bool,
    ) -> None:
        self._events = events
        self._course = course
        self._bps_of = bps_of
        self._change = change
        self._waiting = waiting
        self._is_sending = is_sending
        self._is_trunk = is_trunk
        self._met_ns = 0
        self._next_ns = next_change_ns(course, 0)
        self._armed = False
        self._pending: deque[tuple[int, int]] = deque()
        """When the capacities are given that have been due, and they themselves."""

    def wake(self, now_ns: int) -> None:
        """Handle that something begins to send: have the present capacity, and follow the course from now on."""
        if self._armed or self._next_ns is None:
            return
        if self._due_ns(self._next_ns) <= now_ns:
            while (next_ns := self._next_ns) is not None and self._due_ns(next_ns) <= now_ns:
                self._met_ns = next_ns
                self._next_ns = next_change_ns(self._course, next_ns)
            bps = self._bps_of(self._course.at(self._met_ns))
            if self._pending:
                self._give_at(self._pending[-1][0], bps)
            else:
                self._change(bps, now_ns)
        self._arm()

    def _due_ns(self, at_ns: int) -> int:
        return at_ns - self._course.at(at_ns - 1).latency_ns if self._is_trunk else at_ns

    def _arm(self) -> None:
        if self._next_ns is not None:
            self._armed = True
            self._events.at(max(self._due_ns(self._next_ns), self._events.now_ns), self._change_due, None)

    def _change_due(self, now_ns: int, _: None) -> None:
        assert self._next_ns is not None
        self._armed = False
        self._met_ns = self._next_ns
        self._next_ns = next_change_ns(self._course, self._met_ns)
        bps = self._bps_of(self._course.at(self._met_ns))
        self._give_at(self._carried_ns(now_ns), bps)
        if self._is_sending():
            self._arm()

    def _carried_ns(self, now_ns: int) -> int:
        """Return when what waits now has been carried, each part at the rate at which it was accepted."""
        waiting_bits_ns, rate_bps = self._waiting(now_ns)
        at_ns = now_ns
        for next_ns, next_bps in self._pending:
            waiting_bits_ns -= rate_bps * (next_ns - at_ns)
            at_ns, rate_bps = next_ns, next_bps
        return at_ns + max(waiting_bits_ns, 0) // rate_bps if rate_bps else at_ns

    def _give_at(self, time_ns: int, bps: int) -> None:
        self._pending.append((time_ns, bps))
        self._events.at(time_ns, self._apply, bps)

    def _apply(self, now_ns: int, bps: int) -> None:
        self._pending.popleft()
        self._change(bps, now_ns)
