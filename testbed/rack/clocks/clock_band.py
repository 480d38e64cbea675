"""Bound how far a machine's clock is ahead of the driver's by all two-way exchanges of a trial together.

The machine read its clock after it was asked and before it had answered. So how far it is ahead was at most what it
showed less the time of the question, at that time, and at least what it showed less the time of the answer, at that
one. Each exchange is two such bounds. If the difference of the clocks is a line, that line respects all of them: the
requests that happened to be quick bound it from above, quick answers from below. The lines that do are a convex
polygon of what they are at the begin and at the end of the trial, and all of them are between its corners.
"""

from collections.abc import Sequence
from typing import NamedTuple

STEADY = 1e-7
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


class Band(NamedTuple):
    """The least and the most that a line respecting all bounds may be at the begin, and at the end."""

    begin_ns: tuple[float, float]
    end_ns: tuple[float, float]

    @property
    def half_ns(self) -> float:
        """The largest distance of such a line, at any time in between, from that through the middle of both ends."""
        # Two lines are nowhere in between farther apart than at one of the ends.
        return max(self.begin_ns[1] - self.begin_ns[0], self.end_ns[1] - self.end_ns[0]) / 2


def band_between(bounds: Sequence[Bound], begin_ns: int, end_ns: int, slack_ns: float) -> Band | None:
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
    return Band((min(begins), max(begins)), (min(ends), max(ends)))


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
