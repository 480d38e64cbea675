"""The event queue of a discrete-event simulation."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from wanbed.ground.compiled_core.native_numbers import i64

Handler = Callable[[int, Any], None]

_NEVER: Final = -1
_MOST_NS: Final = (1 << 63) - 1


class Event:
    """Something that happens at a time: a subclass says what. ``turn`` is its turn within its instant.

    It may be added again once it has happened. ``following`` is the event after it in its instant.
    """

    __slots__ = ("following", "turn")

    def __init__(self) -> None:
        self.turn: i64 = 0
        self.following: Event | None = None

    def happen(self, now_ns: int) -> None:
        """Handle that its time has come."""


class _Call(Event):
    """The call of a handler with its argument."""

    __slots__ = ("argument", "handler")

    def __init__(self, handler: Handler, argument: Any) -> None:
        self.turn = 0
        self.following = None
        self.handler = handler
        self.argument = argument

    def happen(self, now_ns: int) -> None:
        """Call the handler."""
        self.handler(now_ns, self.argument)


class _Instant:
    """The events of a time, in order of their turns: a chain from the first one that has not happened to the last one.

    ``placed`` was put before others last, None if it has happened: what follows mostly belongs behind it.
    """

    __slots__ = ("at_ns", "first", "last", "placed")

    def __init__(self, at_ns: i64) -> None:
        self.at_ns = at_ns
        self.first: Event | None = None
        self.last: Event | None = None
        self.placed: Event | None = None

    def place(self, turn: i64, event: Event) -> None:
        """Add an event behind all of its turn or of earlier ones, and before the last one."""
        first, placed = self.first, self.placed
        assert first is not None
        self.placed = event
        if turn < first.turn:
            event.following = first
            self.first = event
            return
        before = first if placed is None or turn < placed.turn else placed
        following = before.following
        while following is not None and following.turn <= turn:
            before, following = following, following.following
        before.following, event.following = event, following


class EventQueue:
    """Handles events in order of time. Events of the same time are handled in the order in which they were added.

    Only instants have to be sorted: ``_times_ns`` is a heap of their times. ``_open`` is the instant that is being
    handled, ``_recent`` and ``_before`` are two that wait, to which something was added last.
    """

    __slots__ = ("_added", "_before", "_first", "_instants", "_open", "_recent", "_times_ns", "now_ns")

    def __init__(self) -> None:
        self._times_ns: list[int] = []
        self._instants: dict[int, _Instant] = {}
        self._added: i64 = 0
        self._first: i64 = 0
        self._open = self._recent = self._before = _NONE
        self.now_ns = 0

    @property
    def next_ns(self) -> int | None:
        """The time of the next event, None if there is none."""
        return self._times_ns[0] if self._times_ns else None

    def at(self, time_ns: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, after all earlier events."""
        self.add(time_ns, _Call(handler, argument))

    def add(self, time_ns: int, event: Event) -> None:
        """Let ``event`` happen at ``time_ns``, after all earlier events. Raise OverflowError beyond 64 bits."""
        self._added += 1
        self.add_in_turn(time_ns, self._added, event)

    def take_turns(self, count: int) -> int:
        """Reserve ``count`` successive turns, those of events added now. Return the first one."""
        first = self._added + 1
        self._added += count
        return int(first)

    def at_turn(self, time_ns: int, turn: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, as if added when ``turn`` was taken."""
        self.add_in_turn(time_ns, turn, _Call(handler, argument))

    def add_in_turn(self, time_ns: int, turn: i64, event: Event) -> None:
        """Let ``event`` happen at ``time_ns``, as if added when ``turn`` was taken. Raise OverflowError as ``add``."""
        event.turn = turn
        instant = self._recent
        if instant.at_ns != time_ns:
            instant = self._instant(time_ns)
        last = instant.last
        if last is None:
            instant.first = event
        elif last.turn <= turn:
            last.following = event
        else:
            instant.place(turn, event)
            return
        instant.last = event

    def first_at(self, time_ns: int, handler: Handler, argument: Any) -> None:
        """Call ``handler(time_ns, argument)`` at ``time_ns``, before what has been added to it, or is by ``at``."""
        self.add_first(time_ns, _Call(handler, argument))

    def add_first(self, time_ns: int, event: Event) -> None:
        """Let ``event`` happen at ``time_ns``, before what has been added to it, or is by ``add``."""
        self._first -= 1
        self.add_in_turn(time_ns, self._first, event)

    def _instant(self, time_ns: int) -> _Instant:
        """Return the instant of a time."""
        instant = self._open
        if instant.at_ns == time_ns:
            return instant
        instant = self._before
        self._before = self._recent
        if instant.at_ns != time_ns:
            found = self._instants.get(time_ns)
            if found is None:
                if time_ns > _MOST_NS:
                    raise OverflowError
                found = self._instants[time_ns] = _Instant(time_ns)
                heappush(self._times_ns, time_ns)
            instant = found
        self._recent = instant
        return instant

    def handle_next_instant(self) -> bool:
        """Handle all events of the earliest time, including those added for it. Return False if there is none."""
        if not self._times_ns:
            return False
        now_ns = self.now_ns = heappop(self._times_ns)
        instant = self._open = self._instants.pop(now_ns)
        if instant is self._recent:
            self._recent = _NONE
        elif instant is self._before:
            self._before = _NONE
        # What is added for this instant meanwhile joins the chain, which grows while it is gone through.
        while (event := instant.first) is not None:
            instant.first = following = event.following
            if following is None:
                instant.last = None
            else:
                event.following = None
            if event is instant.placed:
                instant.placed = None
            event.happen(now_ns)
        # What is added for the same time later is an instant of its own.
        self._open = _NONE
        return True

    def handle_until(self, now_ns: int) -> None:
        """Handle every event until ``now_ns``, with its own time, also those that are added meanwhile."""
        while self._times_ns and self._times_ns[0] <= now_ns:
            self.handle_next_instant()


_NONE: Final = _Instant(_NEVER)
