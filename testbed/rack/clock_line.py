"""Estimate a machine's clock against the driver's from two-way exchanges: offset, drift, and a bound of the error.

In an exchange the driver notes its time, asks the machine for its own, and notes when the answer is there. The machine
read its clock after it was asked and before it had answered. So how far it is ahead was at most what it showed less the
time of the question, at that time, and at least what it showed less the time of the answer, at that one. Each exchange
is two such bounds.

Both clocks run evenly, so that their difference is a line, which respects all of the bounds: the requests that happened
to be quick bound it from above, quick answers from below. The lines that do are a convex polygon of what they are at
the begin and at the end of the trial, and all of them are between its corners. The line through the middle is nearest
to all of them.

Where no line agrees with all exchanges, one of the clocks was steered during the trial. Then the line is fitted through
the quickest exchange of each burst. At the moment of an exchange the clock is within half the round trip of what it
showed, and the line misses that by its residual: the largest sum of both is stated.

Neither bound assumes anything about the network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_STEADY = 1e-7
"""By how much a clock's rate is taken to stay near its mean in a trial: 0.1 ppm, what oscillators of PCs keep to (D.
Veitch, J. Ridoux, S. B. Korada: "Robust Synchronization of Absolute and Difference Clocks over Networks", 2009)."""

_FASTEST = 0.2
"""The most that a clock gains on another: a kernel lets each be steered by 10 % (adjtimex(2), ``tick``)."""

_Corner = tuple[float, float]
"""The values of a line at the begin and at the end of a trial."""


class Bound(NamedTuple):
    """The offset at ``at_ns`` is at most ``offset_ns``, or with ``lower`` at least that."""

    at_ns: int
    offset_ns: int
    lower: bool


class _Band(NamedTuple):
    """The least and the most that a line respecting all bounds may be at the begin, and at the end."""

    begin_ns: tuple[float, float]
    end_ns: tuple[float, float]

    @property
    def half_ns(self) -> float:
        """The largest distance of such a line, at any time in between, from that through the middle of both ends."""
        # Two lines are nowhere in between farther apart than at one of the ends.
        return max(self.begin_ns[1] - self.begin_ns[0], self.end_ns[1] - self.end_ns[0]) / 2


def _band_between(bounds: Sequence[Bound], begin_ns: int, end_ns: int, slack_ns: float) -> _Band | None:
    """Return where the lines are that respect all bounds within ``slack_ns``, None if no line does.

    The bounds are at times from ``begin_ns`` to ``end_ns``, and there are some of both kinds.
    """
    length_ns = max(1, end_ns - begin_ns)
    lowest = min(bound.offset_ns for bound in bounds) - length_ns - slack_ns
    highest = max(bound.offset_ns for bound in bounds) + length_ns + slack_ns
    corners = [(lowest, lowest), (highest, lowest), (highest, highest), (lowest, highest)]
    for of_begin in (1, -1):
        corners = _cut(corners, of_begin, -of_begin, _FASTEST * length_ns)
    for bound in bounds:
        share = (bound.at_ns - begin_ns) / length_ns
        if bound.lower:
            corners = _cut(corners, share - 1, -share, slack_ns - bound.offset_ns)
        else:
            corners = _cut(corners, 1 - share, share, slack_ns + bound.offset_ns)
        if not corners:
            return None
    begins, ends = [corner[0] for corner in corners], [corner[1] for corner in corners]
    return _Band((min(begins), max(begins)), (min(ends), max(ends)))


def _cut(corners: Sequence[_Corner], of_begin: float, of_end: float, most: float) -> list[_Corner]:
    """Return what is left of a convex polygon where ``of_begin * begin + of_end * end`` is at most ``most``."""
    beyond = [of_begin * begin + of_end * end - most for begin, end in corners]
    kept: list[_Corner] = []
    for place, corner in enumerate(corners):
        if beyond[place] <= 0:
            kept.append(corner)
        following = (place + 1) % len(corners)
        if (beyond[place] < 0 < beyond[following]) or (beyond[following] < 0 < beyond[place]):
            part = beyond[place] / (beyond[place] - beyond[following])
            other = corners[following]
            kept.append((corner[0] + part * (other[0] - corner[0]), corner[1] + part * (other[1] - corner[1])))
    return kept


_WORST_RTT = 2
"""An exchange under load counts if its round trip is at most this many times that of the worse end of the trial."""

_ROUNDED_NS = 2
"""The middle of an exchange is rounded, and so is a time that is converted."""


@dataclass(frozen=True)
class ClockExchange:
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
        """The lead of the machine's clock over the driver's."""
        return self.machine_ns - self.middle_ns


@dataclass(frozen=True)
class ClockLine:
    """The lead of a machine's clock: ``offset_ns`` at the driver's ``at_ns``, and ``drift`` more each nanosecond.

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


def quickest(exchanges: Iterable[ClockExchange]) -> ClockExchange:
    """Return the exchange with the shortest round trip."""
    return min(exchanges, key=lambda each: each.rtt_ns)


def fit_line(bursts: Sequence[Sequence[ClockExchange]]) -> ClockLine:
    """Return the line of bursts of exchanges, in the order of their times: at least one burst, none empty."""
    exchanges = [each for burst in bursts for each in burst]
    begin_ns, end_ns = min(each.asked_ns for each in exchanges), max(each.answered_ns for each in exchanges)
    # Relative to an offset, because a clock's count of nanoseconds exceeds the digits of a float.
    base_ns = exchanges[0].machine_ns - begin_ns
    bounds = [
        bound
        for each in exchanges
        for bound in (
            Bound(each.asked_ns, each.machine_ns - each.asked_ns - base_ns, lower=False),
            Bound(each.answered_ns, each.machine_ns - each.answered_ns - base_ns, lower=True),
        )
    ]
    # A rate that stays within that of its mean leaves the line by half of that times the length at most; and the
    # machine's clock is read in whole nanoseconds.
    bent_ns = _STEADY * (end_ns - begin_ns) / 2 + 1
    band = _band_between(bounds, begin_ns, end_ns, bent_ns)
    if band is None:
        return _fitted([quickest(burst) for burst in bursts])
    middle_ns, last_ns = sum(band.begin_ns) / 2, sum(band.end_ns) / 2
    drift = (last_ns - middle_ns) / max(1, end_ns - begin_ns)
    error_ns = (band.half_ns + bent_ns) * (1 + abs(drift))
    return ClockLine(begin_ns, base_ns + middle_ns, drift, round(error_ns) + _ROUNDED_NS)


def _fitted(best: Sequence[ClockExchange]) -> ClockLine:
    """Return the line through these exchanges, of which those count that did not meet a machine too busy to answer.

    The first and the last always count.
    """
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
    return ClockLine(at_ns, base_ns + start, drift, round(error_ns) + _ROUNDED_NS)
