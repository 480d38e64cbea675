"""Send packets over one direction of a node pair: netem's loss and jitter, then the rate, first come, first served.

Lanes that cross a trunk or a port share its rate.
"""

from collections.abc import Sequence
from random import Random
from typing import Final


class LaneCapacity:
    """A trunk or a port: its capacity, and until when each lane that crosses it has packets for it."""

    __slots__ = ("_busy_ns", "_capacity_bps")

    def __init__(self, capacity_bps: int) -> None:
        self._capacity_bps = capacity_bps
        self._busy_ns: list[int] = []

    def enter(self) -> int:
        """Add a lane. Return its number."""
        self._busy_ns.append(-1)
        return len(self._busy_ns) - 1

    def share_bps(self, lane: int, time_ns: int) -> int:
        """Return the rate of a lane that sends at ``time_ns``: an equal share between those that send then."""
        busy_ns = self._busy_ns
        if len(busy_ns) == 1:
            return self._capacity_bps
        senders = 1 + sum([until_ns > time_ns for until_ns in busy_ns]) - (busy_ns[lane] > time_ns)
        return max(self._capacity_bps // senders, 1)

    def busy_until(self, lane: int, until_ns: int) -> None:
        """Handle that a lane sends until then."""
        self._busy_ns[lane] = until_ns


class LaneRate:
    """The rate of one lane: at most ``own_bps`` (None for no limit), and its share of everything in ``shared``."""

    __slots__ = ("_own_bps", "_shared")

    def __init__(self, own_bps: int | None, shared: Sequence[LaneCapacity] = ()) -> None:
        self._own_bps = own_bps
        self._shared = [(each, each.enter()) for each in shared]

    def rate_bps(self, time_ns: int) -> int | None:
        """Return the rate of a packet that reaches the line at ``time_ns``, None for no limit."""
        rate_bps = self._own_bps
        for each, lane in self._shared:
            share_bps = each.share_bps(lane, time_ns)
            if rate_bps is None or share_bps < rate_bps:
                rate_bps = share_bps
        return rate_bps

    def busy_until(self, until_ns: int) -> None:
        """Handle that the lane sends until then."""
        for each, lane in self._shared:
            each.busy_until(lane, until_ns)


_BITS_NS: Final = 8 * 10**9


class Lane:
    """One direction of a node pair. Packets keep their order.

    As in netem, each packet is lost with probability ``loss``. Otherwise it is delayed by the latency and a uniform
    deviation of at most ``jitter_ns``, but by no less than the packet before it. Then it waits for the line, whose rate
    is that of ``rates``. All draws come from ``seed``.
    """

    __slots__ = ("_draw", "_free_ns", "_jitter_ns", "_last_ns", "_latency_ns", "_loss", "_rates", "carried_ns")

    def __init__(self, rates: LaneRate, latency_ns: int, *, loss: float, jitter_ns: int, seed: str) -> None:
        self._rates = rates
        self._latency_ns = latency_ns
        self._loss, self._jitter_ns = loss, jitter_ns
        self._draw = Random(seed).random  # noqa: S311 - nothing is kept secret by it
        self._last_ns = self._free_ns = 0
        self.carried_ns = 0
        """The time that the line has taken for the packet that was sent last."""

    def send(self, now_ns: int, wire_bytes: int) -> int:
        """Send a packet of so many bytes. Return when it arrives, -1 if it is lost. Times must not decrease."""
        if self._loss and self._draw() < self._loss:
            return -1
        due_ns = now_ns + self._latency_ns
        if self._jitter_ns:
            due_ns += int((2 * self._draw() - 1) * self._jitter_ns)
        due_ns = self._last_ns = max(due_ns, self._last_ns)
        rate_bps = self._rates.rate_bps(due_ns)
        if rate_bps is None:
            self.carried_ns = 0
            return due_ns
        self.carried_ns = -(-wire_bytes * _BITS_NS // rate_bps)
        self._free_ns = max(due_ns, self._free_ns) + self.carried_ns
        self._rates.busy_until(self._free_ns)
        return self._free_ns
