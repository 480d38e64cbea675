"""Estimate a machine's clock against the driver's from two-way exchanges: offset, drift, and a bound of the error.

In an exchange the driver notes its time, asks the machine for its own, and notes when the answer is there. The machine
read its clock some time in between; the middle is wrong by half the round trip at most. So of exchanges that follow one
another only the one with the shortest round trip counts. Both clocks run evenly, so that their difference is a line.

The error is bounded without any assumption about the network. At the moment of an exchange the true line is within half
the round trip of what it showed, and the fitted line misses that by its residual. The sum of both bounds how far the
lines are apart then; and between two such moments lines are nowhere farther apart than at one of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WORST_RTT = 2
"""An exchange under load counts if its round trip is at most this many times that of the worse end of the trial."""


@dataclass(frozen=True)
class Exchange:
    """One exchange: the driver's clock when it asked and when it had the answer, and the machine's in between."""

    asked_ns: int
    machine_ns: int
    answered_ns: int

    @property
    def rtt_ns(self) -> int:
        """The round-trip time."""
        return self.answered_ns - self.asked_ns

    @property
    def middle_ns(self) -> int:
        """The driver's time at which the machine is taken to have read its clock."""
        return (self.asked_ns + self.answered_ns) // 2

    @property
    def offset_ns(self) -> int:
        """How far the machine's clock is ahead of the driver's."""
        return self.machine_ns - self.middle_ns


@dataclass(frozen=True)
class ClockLine:
    """How far a machine's clock is ahead: ``offset_ns`` at the driver's ``at_ns``, and ``drift`` more each nanosecond.

    ``error_ns`` bounds how far the line is off, from the first to the last exchange that it was made of.
    """

    at_ns: int
    offset_ns: float
    drift: float
    error_ns: int

    def offset_at_ns(self, driver_ns: int) -> float:
        """Return how far the machine's clock is ahead at a moment of the driver's."""
        return self.offset_ns + self.drift * (driver_ns - self.at_ns)

    def driver_ns(self, machine_ns: int) -> int:
        """Return the driver's time at which the machine's clock showed ``machine_ns``."""
        # Relative to the reference, because a clock's count of nanoseconds exceeds the digits of a float.
        ahead_ns = machine_ns - self.at_ns
        return self.at_ns + round((ahead_ns - self.offset_ns) / (1 + self.drift))

    def facts(self) -> dict[str, float]:
        """Return the line as in a trial's record."""
        return {"offset_ns": round(self.offset_ns), "drift_ppm": round(self.drift * 1e6, 3), "error_ns": self.error_ns}


def quickest(exchanges: Iterable[Exchange]) -> Exchange:
    """Return the exchange with the shortest round trip."""
    return min(exchanges, key=lambda each: each.rtt_ns)


def fit_line(bursts: Sequence[Sequence[Exchange]]) -> ClockLine:
    """Return the line through bursts of exchanges, in the order of their times: at least one burst, none empty.

    Of each burst the quickest exchange counts, if the machine was not too busy then. The first and the last burst
    always count.
    """
    best = [quickest(burst) for burst in bursts]
    ends = best[0], best[-1]
    slowest_ns = _WORST_RTT * max(end.rtt_ns for end in ends)
    used = [each for each in best if each.rtt_ns <= slowest_ns or each in ends]
    at_ns = used[0].middle_ns
    times = [each.middle_ns - at_ns for each in used]
    # An offset is known within half a round trip: it counts by the square of that.
    weights = [1 / max(1, each.rtt_ns) ** 2 for each in used]
    base_ns = used[0].offset_ns
    offsets = [each.offset_ns - base_ns for each in used]
    total = sum(weights)
    mean_time = sum(weight * time for weight, time in zip(weights, times, strict=True)) / total
    mean_offset = sum(weight * offset for weight, offset in zip(weights, offsets, strict=True)) / total
    spread = sum(weight * (time - mean_time) ** 2 for weight, time in zip(weights, times, strict=True))
    together = sum(
        weight * (time - mean_time) * (offset - mean_offset)
        for weight, time, offset in zip(weights, times, offsets, strict=True)
    )
    drift = together / spread if spread else 0.0
    start = mean_offset - drift * mean_time
    error_ns = max(
        each.rtt_ns / 2 * (1 + abs(drift)) + abs(offset - start - drift * time)
        for each, time, offset in zip(used, times, offsets, strict=True)
    )
    # The middle is rounded, and so is a time that is converted.
    return ClockLine(at_ns, base_ns + start, drift, round(error_ns) + 2)
