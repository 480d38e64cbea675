"""Cover time with intervals of several groups at once, and find the gaps, in O(n log n) without a loop."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupedIntervals:
    """Intervals [start, end) by group, then start; make one with ``of``.

    ``order`` is where each stood before, ``before`` the latest end of those before it in its group, its own start for
    the first one.
    """

    order: Numbers
    group: Numbers
    start: Numbers
    end: Numbers
    before: Numbers

    @classmethod
    def of(cls, group: Numbers, start: Numbers, end: Numbers) -> "GroupedIntervals":
        """Sort any intervals, given with their groups as numbers from 0."""
        order = np.lexsort((start, group))
        group, start, end = group[order], start[order], end[order]
        # The latest end so far in the own group, by the order of all ends, so that any group outdoes those before it.
        by_end = np.argsort(end, kind="stable")
        place = np.empty(len(end), np.int64)
        place[by_end] = np.arange(len(end))
        latest = end[by_end[np.maximum.accumulate(place + group * len(end)) - group * len(end)]]
        before = np.concatenate((start[:1], latest[:-1]))
        first = np.flatnonzero(np.diff(group)) + 1
        before[first] = start[first]
        return cls(order, group, start, end, before)

    def covered(self, groups: int) -> Numbers:
        """Return the length of each group's union: what several cover counts once."""
        lengths = np.zeros(groups, np.int64)
        np.add.at(lengths, self.group, np.maximum(self.end - np.maximum(self.start, self.before), 0))
        return lengths


class CoveredTime:
    """Compute how much of any stretch of time the intervals of a group cover. Times must not be negative."""

    def __init__(self, intervals: GroupedIntervals, longest: int) -> None:
        """Prepare the sums. ``longest`` is a time that neither a query nor an interval exceeds."""
        self._scale = longest + 1
        start = np.maximum(intervals.start, intervals.before)
        lengths = np.maximum(intervals.end - start, 0)
        own = lengths > 0
        self._begins = intervals.group[own] * self._scale + start[own]
        self._lengths = lengths[own]
        self._sums = np.concatenate(([0], np.cumsum(self._lengths)))

    def between(self, group: Numbers, start: Numbers, end: Numbers) -> Numbers:
        """Return the covered time within [start, end) of each one's group."""
        return self._until(group, end) - self._until(group, start)

    def _until(self, group: Numbers, time: Numbers) -> Numbers:
        moment = group * self._scale + time
        begun = np.searchsorted(self._begins, moment, side="right")
        if not len(self._begins):
            return np.zeros(len(moment), np.int64)
        last = np.maximum(begun - 1, 0)
        inside = np.minimum(moment - self._begins[last], self._lengths[last])
        return np.where(begun > 0, self._sums[last] + inside, 0)
