"""A packet of a connection's stream, and what has become of it."""

from typing import Final, NamedTuple

from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES

INITIAL_SEGMENTS: Final = 10
UNLIMITED: Final = 1 << 30
HEADER_BYTES: Final = FRAME_BYTES - PAYLOAD_BYTES
ACKNOWLEDGEMENT_BYTES: Final[int] = 66
ACKNOWLEDGED_SEGMENTS: Final[int] = 2
"""The wire bytes of an acknowledgement, and how many segments one is sent for."""


class Stamp(NamedTuple):
    """The sender's state when it sent a packet.

    How many segments had been delivered, and when the last one was; when the first one of those in flight was sent; and
    whether data had run out.
    """

    delivered: int
    delivered_ns: int
    first_ns: int
    limited: bool


class Acknowledgement(NamedTuple):
    """The report of one end to the other about the bytes that it has received.

    The first byte that is missing, how many packets had arrived, whether one arrived again (RFC 2883), and how many
    bytes more it takes, of which ``UNLIMITED`` is no limit.
    """

    next_byte: int
    packets: int
    is_duplicate: bool
    window_bytes: int = UNLIMITED


class Packet:
    """A packet of a connection's stream, from byte ``start`` to before byte ``end``: one segment, or several at once.

    ``segments`` counts them, of ``segment_bytes`` at most each, as congestion windows do. ``acknowledgement`` is what
    it tells about the other direction, if that has bytes too. ``parts`` are what it was cut into after it was sent.
    ``came_again`` is whether it arrived as it was sent again, not first.
    """

    __slots__ = (
        "acknowledgement",
        "arrived",
        "came_again",
        "end",
        "first_sent_ns",
        "in_flight",
        "is_acknowledged",
        "is_lost",
        "parts",
        "resent",
        "segments",
        "sent_ns",
        "stamp",
        "start",
    )

    def __init__(self, start: int, end: int, segment_bytes: int = PAYLOAD_BYTES) -> None:
        self.start, self.end = start, end
        self.segments = -(-(end - start) // segment_bytes)
        self.sent_ns = 0
        self.in_flight = self.is_lost = self.is_acknowledged = self.resent = False
        self.arrived = False
        self.stamp: Stamp | None = None
        self.acknowledgement: Acknowledgement | None = None
        self.parts: tuple[Packet, Packet] | None = None
        self.first_sent_ns, self.came_again = -1, False

    def cut(self, segments: int, segment_bytes: int) -> "tuple[Packet, Packet]":
        """Return its first ``segments``, and its other ones, which from now on take its place. It has more."""
        middle = self.start + segments * segment_bytes
        parts = Packet(self.start, middle, segment_bytes), Packet(middle, self.end, segment_bytes)
        for part in parts:
            part.first_sent_ns, part.sent_ns, part.stamp = self.first_sent_ns, self.sent_ns, self.stamp
            part.in_flight, part.is_lost, part.resent = self.in_flight, self.is_lost, self.resent
            part.is_acknowledged, part.arrived = self.is_acknowledged, self.arrived
        self.parts = parts
        self.in_flight = self.is_lost = False
        return parts
