"""Measure round-trip times, and derive the timers of a sender from them (RFC 6298, RFC 8985) as Linux 6.1 does."""

from typing import Final

TICK_NS: Final = 10_000_000
"""The tick of a kernel's clock at 100 Hz, as in virtual time."""

_LEAST_TIMEOUT_NS: Final = 200_000_000
_FIRST_TIMEOUT_NS: Final = 1_000_000_000
_PROBE_TICKS: Final = 2


class RoundTrips:
    """The round-trip times of one connection: the least one, the smoothed one, and how much they vary."""

    __slots__ = ("_smooth_ns", "_varies_ns", "least_ns")

    def __init__(self) -> None:
        self.least_ns = self._smooth_ns = self._varies_ns = 0

    def measure(self, first_ns: int, last_ns: int) -> None:
        """Add an acknowledgement's times, since the first and since the last segment was sent that it is for."""
        if not self.least_ns or last_ns < self.least_ns:
            self.least_ns = last_ns
        if not self._smooth_ns:
            self._smooth_ns, self._varies_ns = first_ns, first_ns // 2
        else:
            self._varies_ns += (abs(first_ns - self._smooth_ns) - self._varies_ns) // 4
            self._smooth_ns += (first_ns - self._smooth_ns) // 8

    @property
    def timeout_ns(self) -> int:
        """The retransmission timeout, without back-off."""
        if not self._smooth_ns:
            return _FIRST_TIMEOUT_NS
        return self._smooth_ns + max(4 * self._varies_ns, _LEAST_TIMEOUT_NS)

    def probe_ns(self, outstanding: int) -> int:
        """Return after how long a tail loss probe is sent. The acknowledgement of a single segment may be delayed."""
        if not self._smooth_ns:
            return _FIRST_TIMEOUT_NS
        return 2 * self._smooth_ns + (_LEAST_TIMEOUT_NS if outstanding == 1 else _PROBE_TICKS * TICK_NS)

    @property
    def reordering_ns(self) -> int:
        """The time for which a segment is waited for that may only be late."""
        return min(self.least_ns // 4, self._smooth_ns // 8)


def goes_off_ns(from_ns: int, wait_ns: int) -> int:
    """Return when a timer of the kernel goes off: it counts whole ticks, and one more."""
    return (from_ns // TICK_NS - -wait_ns // TICK_NS + 1) * TICK_NS


def late_segment_ns(now_ns: int, wait_ns: int) -> int:
    """Return when the timer for segments that may only be late goes off."""
    return goes_off_ns(now_ns, wait_ns + _PROBE_TICKS * TICK_NS)
