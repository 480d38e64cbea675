"""The event queue of a discrete-event simulation."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

Handler = Callable[[int, Any], None]

_NEVER: Final = -1


class Event:
    """Something that happens at a time: a subclass says what. ``turn`` is its turn within its instant.

    It may be added again once it has happened.
    """

    __slots__ = ("turn",)

    def __init__(self) -> None:
        self.turn = 0

    def happen(self, now_ns: int) -> None:
        """Handle that its time has come."""


class _Call(Event):
    """The call of a handler with its argument."""

    __slots__ = ("argument", "handler")

    def __init__(self, handler: Handler, argument: Any) -> None:
        self.turn = 0
        self.handler = handler
        self.argument = argument

    def happen(self, now_ns: int) -> None:
        """Call the handler."""
        self.handler(now_ns, self.argument)


class EventQueue:
    """Handles events in order of time. Events of the same time are handled in the order in which they were added.

    The events of an instant stand in one list, so that only instants have to be sorted. ``_open_ns`` is the time of the
    instant that is being handled, whose list is ``_open``.
    """

    __slots__ = ("_added", "_first", "_handled", "_instants", "_open", "_open_ns", "_times_ns", "now_ns")

    def __init__(self) -> None:
        self._times_ns: list[int] = []
        self._instants: dict[int, list[Event]] = {}
        self._added = 0
        self._first = 0
        self._handled = 0
        self._open: list[Event] = []
        self._open_ns = _NEVER
        self.now_ns = 0

    @property
    def next_ns(self) -> int | None:
        """The time of the next event, None if there is none."""
        return self._times_ns[0] if self._times_ns else None

    def at(self, time_ns: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, after all earlier events."""
        self.add(time_ns, _Call(handler, argument))

    def add(self, time_ns: int, event: Event) -> None:
        """Let ``event`` happen at ``time_ns``, after all earlier events."""
        self._added += 1
        event.turn = self._added
        if time_ns == self._open_ns:
            self._open.append(event)
            return
        events = self._instants.get(time_ns)
        if events is None:
            self._instants[time_ns] = [event]
            heappush(self._times_ns, time_ns)
        else:
            events.append(event)

    def take_turns(self, count: int) -> int:
        """Reserve ``count`` successive turns, those of events added now. Return the first one."""
        first = self._added + 1
        self._added += count
        return first

    def at_turn(self, time_ns: int, turn: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, as if added when ``turn`` was taken."""
        self.add_in_turn(time_ns, turn, _Call(handler, argument))

    def add_in_turn(self, time_ns: int, turn: int, event: Event) -> None:
        """Let ``event`` happen at ``time_ns``, as if added when ``turn`` was taken."""
        event.turn = turn
        events = self._open if time_ns == self._open_ns else self._instants.get(time_ns)
        if events is None:
            self._instants[time_ns] = [event]
            heappush(self._times_ns, time_ns)
        elif events[-1].turn <= turn:
            events.append(event)
        else:
            first = self._handled if time_ns == self._open_ns else 0
            events.insert(_place_of(turn, events, first), event)

    def first_at(self, time_ns: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, before what has been added to it, or is by ``at``."""
        self.add_first(time_ns, _Call(handler, argument))

    def add_first(self, time_ns: int, event: Event) -> None:
        """Let ``event`` happen at ``time_ns``, before what has been added to it, or is by ``add``."""
        self._first -= 1
        self.add_in_turn(time_ns, self._first, event)

    def handle_next_instant(self) -> bool:
        """Handle all events of the earliest time, including those added for it. Return False if there is none."""
        if not self._times_ns:
            return False
        now_ns = self.now_ns = self._open_ns = heappop(self._times_ns)
        events = self._open = self._instants.pop(now_ns)
        # What is added for this instant meanwhile joins the list, which grows while it is gone through.
        while self._handled < len(events):
            event = events[self._handled]
            self._handled += 1
            event.happen(now_ns)
        # What is added for the same time later is an instant of its own.
        self._open_ns = _NEVER
        self._handled = 0
        return True

    def handle_until(self, now_ns: int) -> None:
        """Handle every event until ``now_ns``, with its own time, also those that are added meanwhile."""
        while self._times_ns and self._times_ns[0] <= now_ns:
            self.handle_next_instant()


def _place_of(turn: int, events: list[Event], first: int) -> int:
    """Return the place behind all events of that turn or of earlier ones, among those from the place ``first`` on."""
    last = len(events)
    while first < last:
        middle = (first + last) // 2
        if turn < events[middle].turn:
            last = middle
        else:
            first = middle + 1
    return first
