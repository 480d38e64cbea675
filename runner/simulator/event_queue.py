"""The event queue of a discrete-event simulation."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Handler = Callable[[int, Any], None]


class EventQueue:
    """Handles events in order of time. Events of the same time are handled in the order in which they were added."""

    __slots__ = ("_caused", "_events", "now_ns")

    def __init__(self) -> None:
        self._events: list[tuple[int, int, Handler, Any]] = []
        self._caused = 0
        self.now_ns = 0

    @property
    def next_ns(self) -> int | None:
        """The time of the next event, None if there is none."""
        return self._events[0][0] if self._events else None

    def at(self, time_ns: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, after all earlier events."""
        self._caused += 1
        heappush(self._events, (time_ns, self._caused, handler, argument))

    def handle_next_instant(self) -> bool:
        """Handle all events of the earliest time, including those added for it. Return False if there is none."""
        events = self._events
        if not events:
            return False
        now_ns = self.now_ns = events[0][0]
        while events and events[0][0] == now_ns:
            _, _, handler, argument = heappop(events)
            handler(now_ns, argument)
        return True
