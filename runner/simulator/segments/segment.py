"""A segment of a connection's stream, and what has become of it."""

from typing import Final, NamedTuple

INITIAL_SEGMENTS: Final = 10
UNLIMITED: Final = 1 << 30


class Stamp(NamedTuple):
    """A segment, with the sender's state when it was sent.

    How many segments had been delivered, and when the last one was; when the first one of those in flight was sent; and
    whether data had run out.
    """

    delivered: int
    delivered_ns: int
    first_ns: int
    limited: bool


class Segment:
    """A segment of a connection's stream, from byte ``start`` to before byte ``end``, and what has become of it."""

    __slots__ = ("arrived", "end", "in_flight", "is_acknowledged", "is_lost", "resent", "sent_ns", "stamp", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.sent_ns = 0
        self.in_flight = self.is_lost = self.is_acknowledged = self.resent = False
        self.arrived = False
        self.stamp: Stamp | None = None
