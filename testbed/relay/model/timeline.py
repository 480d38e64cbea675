"""Handle events at their own times, as soon as the machine's clock has reached them.

An event that is handled late still counts as having happened on time. So what follows from it is not late as well, and
the lateness of timers does not add up.
"""

import heapq
from collections.abc import Callable
from itertools import count

Event = Callable[[int], None]
"""Called with the event's own time (ns)."""


class Timeline:
    """Events in the order of their times; those of one time in the order in which they were added."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, Event]] = []
        self._number = count()

    def at(self, time_ns: int, event: Event) -> None:
        """Handle ``event`` at ``time_ns``, which may have passed."""
        heapq.heappush(self._events, (time_ns, next(self._number), event))

    def handle(self, now_ns: int) -> None:
        """Handle every event until ``now_ns``, also those that are added meanwhile."""
        events = self._events
        while events and events[0][0] <= now_ns:
            time_ns, _, event = heapq.heappop(events)
            event(time_ns)

    @property
    def next_ns(self) -> int | None:
        """The time of the next event, None if there is none."""
        return self._events[0][0] if self._events else None
