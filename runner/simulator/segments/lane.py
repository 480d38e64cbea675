"""Send packets over one direction of a node pair: netem's loss and jitter, then the rate, first come, first served."""

from random import Random
from typing import Final

from wanbed.runner.simulator.segments.shared_rates import LaneRate

BITS_NS: Final = 8 * 10**9


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
        self.carried_ns = -(-wire_bytes * BITS_NS // rate_bps)
        self._free_ns = max(due_ns, self._free_ns) + self.carried_ns
        self._rates.busy_until(self._free_ns)
        return self._free_ns
