"""Open the congestion windows of a group of connections: slow start, where cubic leaves it, restarts after idle.

- A window begins with 10 segments (RFC 6928) and grows by what is acknowledged, doubling every RTT, while it is less
  than twice what was in flight (RFC 7661; Linux: ``tcp_is_cwnd_limited``).
- Cubic leaves slow start before anything is lost (HyStart: Ha and Rhee, "Taming the elephants: new TCP slow start",
  2011; Linux: ``hystart_update``). A connection that is alone does when acknowledgements of a round have come without a
  pause for half an RTT: its window is then between one and one and a half of what the line holds. Of several that send
  in step each waits for the bursts of those before it: one leaves when that has become an eighth of an RTT, 4 to 16 ms,
  more than it was in the first round. So does one whose acknowledgements wait for as long behind what the other
  direction sends. From then on a window grows by a twentieth of what is acknowledged, which is what
  cubic does that has lost nothing yet.
- After idle of more than one retransmission timeout it is halved for every whole one, down to 10 segments (RFC 2861;
  Linux: ``tcp_cwnd_restart``). What has left slow start goes back to where it was by slow start.
"""

INITIAL_SEGMENTS = 10
_LEAST_SEGMENTS = 16
_NOTICED_SEGMENTS = 16
"""Segments acknowledged by a round's first eight acknowledgements: when these are late, slow start ends with them."""
_SETTLED_PART = 20
_DELAY_PART, _LEAST_DELAY_NS, _MOST_DELAY_NS = 8, 4_000_000, 16_000_000
_TICK_NS = 10_000_000
"""Of a kernel's clock at 100 Hz, as in virtual time."""
_ALL = 1 << 20
"""Stands for all connections of a group; a part of them is counted as a whole number up to this."""


def halvings(idle_ns: int, timeout_ns: int) -> int:
    """Return how often so much idle halves a window, in ticks of the kernel's clock: timeouts rounded up, idle down."""
    timeout_ticks = timeout_ns // _TICK_NS + 1
    return max(-(-(idle_ns // _TICK_NS) // timeout_ticks) - 1, 0)


class CongestionWindow:
    """The windows of ``connections`` together, in bytes of payload; ``initial_bytes`` are those of all of them.

    ``held_bytes`` is what the line carries in an RTT, None where slow start is never left: without a rate, and by
    congestion controls other than cubic.
    """

    __slots__ = (
        "_connections",
        "_delay_bytes",
        "_delay_ns",
        "_held",
        "_initial",
        "_opening",
        "_part_opening",
        "_settled",
        "_threshold",
    )

    def __init__(self, connections: int, initial_bytes: int, rtt_ns: int, held_bytes: int | None) -> None:
        self._initial = initial_bytes
        self._opening, self._settled = initial_bytes, 0
        self._threshold = 0
        self._part_opening = _ALL
        self._connections = connections
        self._held = held_bytes
        self._delay_ns = min(max(rtt_ns // _DELAY_PART, _LEAST_DELAY_NS), _MOST_DELAY_NS)
        self._delay_bytes = 0 if held_bytes is None or not rtt_ns else held_bytes * self._delay_ns // rtt_ns

    @property
    def size_bytes(self) -> int:
        """The bytes that may be in flight, as far as congestion goes."""
        return self._opening + self._settled

    def grow(self, acknowledged_bytes: int, flown_bytes: int, most_bytes: int, later_ns: int = 0) -> None:
        """Handle that so many bytes in flight are acknowledged; the window becomes ``most_bytes`` at most.

        The acknowledgements came later by so much, behind what the other direction sends.
        """
        size_bytes = self.size_bytes
        if size_bytes >= most_bytes:
            return
        opening = acknowledged_bytes * self._opening // size_bytes
        settled = acknowledged_bytes - opening
        back = min(settled, max(self._threshold - self._settled, 0))
        settled = back + (settled - back) // _SETTLED_PART
        room = most_bytes - size_bytes
        opening = min(opening, room)
        leaves = self._held is not None and self._opening > 0 and self._judges(flown_bytes)
        if leaves and later_ns > self._delay_ns:
            self._opening += min(opening, self._initial * _NOTICED_SEGMENTS // INITIAL_SEGMENTS)
            self._settle(self._opening, 0)
            return
        self._opening += opening
        self._settled += min(settled, room - opening)
        if self._held is not None and self._opening:
            self._leave_slow_start(flown_bytes)

    def halve(self) -> None:
        """Halve the window: a timeout of idle has passed."""
        self._threshold = max(self._threshold, 3 * self._settled // 4)
        least_opening = self._initial * self._part_opening // _ALL
        self._opening = max(self._opening // 2, least_opening)
        self._settled = max(self._settled // 2, self._initial - least_opening)

    @property
    def is_initial(self) -> bool:
        """Whether nothing is left to be halved."""
        return self.size_bytes <= self._initial

    def _judges(self, flown_bytes: int) -> bool:
        """Return whether enough was in flight for the round's delays to be looked at."""
        return flown_bytes * INITIAL_SEGMENTS >= self._initial * _LEAST_SEGMENTS

    def _leave_slow_start(self, flown_bytes: int) -> None:
        assert self._held is not None
        if self._connections == 1:
            if 2 * flown_bytes > self._held:
                self._settle(min(self._opening, flown_bytes + self._held // 2), 0)
            return
        later_bytes = flown_bytes - self._initial
        if not self._judges(flown_bytes) or later_bytes <= self._delay_bytes:
            return
        stays = _ALL * self._delay_bytes // later_bytes
        if stays < self._part_opening:
            self._settle(self._opening * (self._part_opening - stays) // self._part_opening, stays)

    def _settle(self, size_bytes: int, part_opening: int) -> None:
        self._opening = self._opening - size_bytes if part_opening else 0
        self._settled += size_bytes
        self._threshold += size_bytes
        self._part_opening = part_opening
