"""The receiving end of a connection: it puts segments in order and acknowledges them.

A segment that leaves a gap, or fills one, is acknowledged at once. Others are acknowledged in twos, and a single one
after 40 ms (RFC 5681, section 4.2; Linux: ``TCP_ATO_MIN``). An acknowledgement lists all segments that have arrived, as
selective acknowledgements do (RFC 2018).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from wanbed.runner.resolve.packet_draws import ACKNOWLEDGED_SEGMENTS, ACKNOWLEDGEMENT_BYTES
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.segments.lane import Lane
from wanbed.runner.simulator.segments.segment import Segment

_DELAY_NS: Final = 40_000_000
_FORGOTTEN: Final = 4096


Acknowledged = Callable[[int, tuple[int, int]], None]
"""Called when an acknowledgement arrives, with the time, the first byte that is missing, and how many segments had
arrived."""


class Receiver:
    """The receiving end.

    ``back`` carries acknowledgements, which call ``acknowledged``. ``in_order`` is called when more has arrived without
    gaps: with the time, which may be in the future, and the first byte that is missing.
    """

    __slots__ = (
        "_acknowledged",
        "_back",
        "_beyond_gap",
        "_due_ns",
        "_events",
        "_expected",
        "_forgotten",
        "_in_order",
        "_log",
        "_next_byte",
        "_timer_ns",
        "_unacknowledged",
    )

    def __init__(
        self, events: EventQueue, back: Lane, acknowledged: Acknowledged, in_order: Callable[[int, int], None]
    ) -> None:
        self._events, self._back = events, back
        self._acknowledged, self._in_order = acknowledged, in_order
        self._expected: deque[Segment] = deque()
        self._log: list[Segment] = []
        self._forgotten = 0
        self._next_byte = self._beyond_gap = self._unacknowledged = 0
        self._due_ns = self._timer_ns = -1

    def expect(self, segment: Segment) -> None:
        """Handle that a segment is sent for the first time, whether it arrives or not."""
        self._expected.append(segment)

    def arrive(self, segment: Segment, at_ns: int) -> None:
        """Handle that a segment arrives at ``at_ns``. It may be called beforehand, in the order of arrival."""
        if segment.arrived:
            self._acknowledge(at_ns)
            return
        segment.arrived = True
        self._log.append(segment)
        expected, had_gap = self._expected, self._beyond_gap > 0
        if expected[0] is not segment:
            self._beyond_gap += 1
            self._acknowledge(at_ns)
            return
        self._beyond_gap += 1
        while expected and expected[0].arrived:
            self._next_byte = expected.popleft().end
            self._beyond_gap -= 1
        self._in_order(at_ns, self._next_byte)
        self._unacknowledged += 1
        if had_gap or self._unacknowledged >= ACKNOWLEDGED_SEGMENTS:
            self._acknowledge(at_ns)
        else:
            self._due_ns = at_ns + _DELAY_NS
            if self._timer_ns < 0:
                self._timer_ns = self._due_ns
                self._events.at(self._due_ns, self._wait_ended, None)

    def arrived_since(self, seen: int, until: int) -> list[Segment]:
        """Return the segments that arrived after the first ``seen``, up to number ``until``. Earlier ones are gone."""
        found = self._log[seen - self._forgotten : until - self._forgotten]
        if until - self._forgotten > _FORGOTTEN:
            del self._log[: until - self._forgotten]
            self._forgotten = until
        return found

    def _wait_ended(self, now_ns: int, _: None) -> None:
        self._timer_ns = -1
        if self._due_ns < 0:
            return
        if self._due_ns > now_ns:
            self._timer_ns = self._due_ns
            self._events.at(self._due_ns, self._wait_ended, None)
            return
        self._acknowledge(now_ns)

    def _acknowledge(self, at_ns: int) -> None:
        self._unacknowledged, self._due_ns = 0, -1
        self._events.at(at_ns, self._send, (self._next_byte, self._forgotten + len(self._log)))

    def _send(self, now_ns: int, what: tuple[int, int]) -> None:
        arrival_ns = self._back.send(now_ns, ACKNOWLEDGEMENT_BYTES)
        if arrival_ns >= 0:
            self._events.at(arrival_ns, self._acknowledged, what)
