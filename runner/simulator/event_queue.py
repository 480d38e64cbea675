"""The event queue of a discrete-event simulation."""

from bisect import bisect
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Handler = Callable[[int, Any], None]

_Event = tuple[int, Handler, Any]
"""The turn within its instant, the handler and its argument."""


def _turn(event: _Event) -> int:
    return event[0]


class EventQueue:
    """Handles events in order of time. Events of the same time are handled in the order in which they were added.

    The events of an instant stand in one list, so that only instants have to be sorted.
    """

    __slots__ = ("_added", "_first", "_handled", "_instants", "_times_ns", "now_ns")

    def __init__(self) -> None:
        self._times_ns: list[int] = []
        self._instants: dict[int, list[_Event]] = {}
        self._added = 0
        self._first = 0
        self._handled = 0
        self.now_ns = 0

    @property
    def next_ns(self) -> int | None:
        """The time of the next event, None if there is none."""
        return self._times_ns[0] if self._times_ns else None

    def at(self, time_ns: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, after all earlier events."""
        self._added += 1
        events = self._instants.get(time_ns)
        if events is None:
            self._instants[time_ns] = [(self._added, handler, argument)]
            heappush(self._times_ns, time_ns)
        else:
            events.append((self._added, handler, argument))

    def take_turns(self, count: int) -> int:
        """Reserve ``count`` successive turns, those of events added now. Return the first one."""
        first = self._added + 1
        self._added += count
        return first

    def at_turn(self, time_ns: int, turn: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, as if added when ``turn`` was taken."""
        events = self._instants.get(time_ns)
        event = turn, handler, argument
        if events is None:
            self._instants[time_ns] = [event]
            heappush(self._times_ns, time_ns)
        elif events[-1][0] <= turn:
            events.append(event)
        else:
            done = self._handled if time_ns == self.now_ns else 0
            events.insert(bisect(events, turn, done, key=_turn), event)

    def first_at(self, time_ns: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, before what has been added to it, or is by ``at``."""
        self._first -= 1
        self.at_turn(time_ns, self._first, handler, argument)

    def handle_next_instant(self) -> bool:
        """Handle all events of the earliest time, including those added for it. Return False if there is none."""
        if not self._times_ns:
            return False
        now_ns = self.now_ns = heappop(self._times_ns)
        events = self._instants[now_ns]
        # What is added for this instant meanwhile joins the list, which grows while it is gone through.
        while self._handled < len(events):
            _, handler, argument = events[self._handled]
            self._handled += 1
            handler(now_ns, argument)
        # What is added for the same time later is an instant of its own.
        del self._instants[now_ns]
        self._handled = 0
        return True
