"""Model the congestion windows of a group of connections: slow start, cubic's exit from it, restarts after idle.

- A window begins with 10 segments (RFC 6928). It grows by the acknowledged bytes, doubling every RTT, while it is less
  than twice the bytes in flight (RFC 7661; Linux: ``tcp_is_cwnd_limited``).
- Cubic leaves slow start before a loss (HyStart: Ha and Rhee, "Taming the elephants: new TCP slow start", 2011; Linux:
  ``hystart_update``), for one of two reasons:

  - The acknowledgements of a round have arrived for half an RTT without a pause of 2 ms. The window of a single
    connection is then between 1 and 1.5 times what the line holds. This cannot occur where two segments take longer
    than 2 ms.
  - The first acknowledgements of a round are later than those of the first round by an eighth of an RTT (at least 4 ms,
    at most 16 ms). A single connection has then filled the line. Of several connections that send in step, each waits
    for the bursts of those before it, except the first. Acknowledgements may also wait behind bytes of the other
    direction.

  The rate at which bytes left counts, also if the line was shared. After slow start a window grows by a twentieth of
  the acknowledged bytes, like that of cubic before its first loss.
- After an idle time of more than one retransmission timeout the window is halved for every whole timeout, down to 10
  segments (RFC 2861; Linux: ``tcp_cwnd_restart``). A window that had left slow start returns to its former size by slow
  start.
- After an outage, the only loss here, a window is a segment (or 0.7 of what it was, if the timeout proves needless). It
  returns to 0.7 of its former size by slow start. Then it grows like cubic's: ``C (t - K)^3 + W_max``, but no slower
  than Reno's with the same losses (RFC 9438, sections 4.2 and 4.3; Linux: ``bictcp_update``).
"""

from typing import Final

INITIAL_SEGMENTS: Final = 10
_LEAST_SEGMENTS: Final = 16
_NOTICED_SEGMENTS: Final = 16
"""Segments acknowledged by a round's first eight acknowledgements. If these are late, slow start ends with them."""
_SETTLED_PART: Final = 20
_DELAY_PART: Final = 8
_LEAST_DELAY_NS: Final = 4_000_000
_MOST_DELAY_NS: Final = 16_000_000
_TRAIN_NS: Final = 2_000_000
_TRAIN_SEGMENTS: Final = 2
"""Acknowledgements, each for two segments, form a train if they follow each other within 2 ms."""
_TICK_NS: Final = 10_000_000
"""The tick of a kernel's clock at 100 Hz, as in virtual time."""
_KEPT_PERCENT: Final = 70
_US: Final = 1_000_000
_RENO_SEGMENTS_OF_17: Final = 9
"""Reno's window with cubic's decrease grows by 3 (1 - 0.7) / (1 + 0.7) = 9 / 17 segments a round (RFC 9438, 4.3)."""
_MOST_GROWTH: Final = 2
"""Cubic grows by at most half of its window a round."""
_ALL: Final = 1 << 20
"""The fixed-point representation of all connections of a group; a part of them is a whole number up to this."""


def halvings(idle_ns: int, timeout_ns: int) -> int:
    """Return how often an idle time halves a window, as the kernel counts: in ticks, timeouts rounded up, idle down."""
    timeout_ticks = timeout_ns // _TICK_NS + 1
    return max(-(-(idle_ns // _TICK_NS) // timeout_ticks) - 1, 0)


def _cube_root(value: int) -> int:
    """Return the cube root, rounded down."""
    if not value:
        return 0
    root = 1 << -(-value.bit_length() // 3)
    while True:
        nearer = (2 * root + value // (root * root)) // 3
        if nearer >= root:
            return root
        root = nearer


class CongestionWindow:
    """The sum of the windows of ``connections`` connections, in bytes of payload. ``initial_bytes`` is its first value.

    ``held_bytes`` is the payload that the line carries in an RTT. It is None where slow start is never left: for a line
    without a rate, and for congestion controls other than cubic. ``piecewise`` says that bytes which left without a
    break are acknowledged in pieces, so that an acknowledgement by itself does not show how long its train is.
    """

    __slots__ = (
        "_connections",
        "_delay_ns",
        "_held",
        "_initial",
        "_least_rtt_ns",
        "_most",
        "_opening",
        "_part_opening",
        "_piecewise",
        "_round_acknowledged",
        "_round_left",
        "_rtt_ns",
        "_settled",
        "_since_us",
        "_threshold",
    )

    def __init__(
        self, connections: int, initial_bytes: int, rtt_ns: int, held_bytes: int | None, *, piecewise: bool = False
    ) -> None:
        self._initial = initial_bytes
        self._opening, self._settled = initial_bytes, 0
        self._threshold = 0
        self._part_opening = _ALL
        self._connections = connections
        self._held = held_bytes
        self._delay_ns = min(max(rtt_ns // _DELAY_PART, _LEAST_DELAY_NS), _MOST_DELAY_NS)
        self._rtt_ns = self._least_rtt_ns = max(rtt_ns, 1)
        # After a loss: the window of a connection before it, in segments, and the time since slow start ended.
        self._most = self._since_us = 0
        self._piecewise = piecewise
        self._round_left = self._round_acknowledged = 0

    def copied(self) -> "CongestionWindow":
        """Return a copy, which changes by itself."""
        copied = CongestionWindow(self._connections, self._initial, self._rtt_ns, self._held, piecewise=self._piecewise)
        copied._opening, copied._settled, copied._threshold = self._opening, self._settled, self._threshold
        copied._part_opening, copied._delay_ns = self._part_opening, self._delay_ns
        copied._least_rtt_ns, copied._most, copied._since_us = self._least_rtt_ns, self._most, self._since_us
        copied._round_left, copied._round_acknowledged = self._round_left, self._round_acknowledged
        return copied

    @property
    def size_bytes(self) -> int:
        """The bytes that the congestion windows allow in flight."""
        return self._opening + self._settled

    def grow(
        self,
        acknowledged_bytes: int,
        flown_bytes: int,
        most_bytes: int,
        later_ns: int = 0,
        held_bytes: int = 0,
    ) -> None:
        """Handle that ``acknowledged_bytes`` are acknowledged while ``flown_bytes`` were in flight.

        The window grows to at most ``most_bytes``. ``later_ns`` is how long the acknowledgements waited behind bytes of
        the other direction. ``held_bytes`` is the payload of an RTT at the rate at which the acknowledged bytes left,
        0 for the line's full rate.
        """
        if self._round_left <= 0:
            self._round_left, self._round_acknowledged = flown_bytes, 0
        self._round_left -= acknowledged_bytes
        self._round_acknowledged += acknowledged_bytes
        size_bytes = self.size_bytes
        if size_bytes >= most_bytes:
            return
        opening = acknowledged_bytes * self._opening // size_bytes
        settled = acknowledged_bytes - opening
        back = min(settled, max(self._threshold - self._settled, 0))
        settled = back + (self._regrown(settled - back) if self._most else (settled - back) // _SETTLED_PART)
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
            self._leave_slow_start(flown_bytes, min(held_bytes, self._held) if held_bytes else self._held)

    def halve(self) -> None:
        """Halve the window after a timeout of idle."""
        self._threshold = max(self._threshold, 3 * self._settled // 4)
        least_opening = self._initial * self._part_opening // _ALL
        self._opening = max(self._opening // 2, least_opening)
        self._settled = max(self._settled // 2, self._initial - least_opening)

    def lose(self, *, needless: bool) -> None:
        """Handle a timeout after a loss: begin with a segment, or if it proved ``needless``, with 0.7 of the window."""
        segment_bytes = self._connections * self._segment_bytes
        size_bytes = self.size_bytes
        # A window that is smaller than before its last loss makes room for others ("fast convergence").
        before = self._most
        self._most = max(size_bytes // segment_bytes, 1)
        if self._most < before:
            self._most = max(self._most * (100 + _KEPT_PERCENT) // 200, 1)
        self._threshold = max(size_bytes * _KEPT_PERCENT // 100, 2 * segment_bytes)
        self._opening, self._settled = 0, self._threshold if needless else segment_bytes
        self._part_opening = self._since_us = 0

    def path_changes(self, rtt_ns: int, held_bytes: int | None) -> None:
        """Handle that a round trip lasts ``rtt_ns`` from now on, and what the line carries in it.

        If it lasts longer by so much that acknowledgements look late, slow start ends: HyStart compares with the
        shortest round trip ever.
        """
        self._rtt_ns, self._least_rtt_ns = max(rtt_ns, 1), min(self._least_rtt_ns, max(rtt_ns, 1))
        self._delay_ns = min(max(self._least_rtt_ns // _DELAY_PART, _LEAST_DELAY_NS), _MOST_DELAY_NS)
        if self._held is None:
            return
        self._held = held_bytes
        late = rtt_ns - self._least_rtt_ns > self._delay_ns
        if late and self._opening and self._judges(self.size_bytes):
            self._settle(self._opening, 0)

    @property
    def _segment_bytes(self) -> int:
        return self._initial // (self._connections * INITIAL_SEGMENTS)

    def _regrown(self, acknowledged_bytes: int) -> int:
        """Return by how much acknowledged bytes let the window grow after a loss, in congestion avoidance."""
        connections, segment_bytes = self._connections, self._segment_bytes
        size_bytes = max(self.size_bytes, 1)
        self._since_us += self._rtt_ns * acknowledged_bytes // (size_bytes * 1000)
        least = self._threshold // (connections * segment_bytes)
        k_us = _cube_root(max(self._most - least, 0) * 10 * _US**3 // 4)
        later_us = self._since_us + self._rtt_ns // 1000 - k_us
        cubic_bytes = (4 * segment_bytes * later_us**3 // (10 * _US**3) + self._most * segment_bytes) * connections
        reno_bytes = connections * segment_bytes * _RENO_SEGMENTS_OF_17 // 17
        reno_bytes = self._threshold + self._since_us * 1000 * reno_bytes // self._rtt_ns
        round_bytes = min(max(cubic_bytes, reno_bytes, size_bytes) - size_bytes, size_bytes // _MOST_GROWTH)
        return round_bytes * acknowledged_bytes // size_bytes

    @property
    def is_initial(self) -> bool:
        """Tell whether the window has its initial size, below which it is not halved."""
        return self.size_bytes <= self._initial

    def _judges(self, flown_bytes: int) -> bool:
        """Return whether enough bytes were in flight for HyStart to evaluate the round's delays."""
        return flown_bytes * INITIAL_SEGMENTS >= self._initial * _LEAST_SEGMENTS

    def _leave_slow_start(self, flown_bytes: int, held_bytes: int) -> None:
        count, segment_bytes = self._connections, self._initial // (self._connections * INITIAL_SEGMENTS)
        follow_closely = held_bytes * _TRAIN_NS > _TRAIN_SEGMENTS * segment_bytes * self._rtt_ns
        in_train = follow_closely and 2 * flown_bytes > count * held_bytes
        delay_bytes = held_bytes * self._delay_ns // self._rtt_ns
        if count == 1:
            if in_train and self._piecewise:
                # The pieces so far have taken half an RTT, as long as the whole train of the other branch.
                if 2 * self._round_acknowledged > held_bytes:
                    self._settle(self._opening, 0)
            elif in_train:
                self._settle(min(self._opening, flown_bytes + held_bytes // 2), 0)
            elif not follow_closely and flown_bytes > held_bytes + delay_bytes:
                self._settle(min(self._opening, flown_bytes + _NOTICED_SEGMENTS * segment_bytes), 0)
            return
        later_bytes = flown_bytes - self._initial
        if not self._judges(flown_bytes) or later_bytes <= delay_bytes:
            return
        staying = 0 if in_train else min(count * delay_bytes // later_bytes + 1, count)
        stays = _ALL * staying // count
        if stays < self._part_opening:
            self._settle(self._opening * (self._part_opening - stays) // self._part_opening, stays)

    def _settle(self, size_bytes: int, part_opening: int) -> None:
        self._opening = self._opening - size_bytes if part_opening else 0
        self._settled += size_bytes
        self._threshold += size_bytes
        self._part_opening = part_opening
