"""Compute the union of intervals and the gaps between them, for several groups at once, in O(n log n) with NumPy."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupedIntervals:
    """Intervals [start, end) sorted by group, then by start. Build it with ``of``.

    ``order`` is each interval's position before sorting. ``before`` is the latest end of the earlier intervals of its
    group; for the first of a group, its own start.
    """

    order: Numbers
    group: Numbers
    start: Numbers
    end: Numbers
    before: Numbers

    @classmethod
    def of(cls, group: Numbers, start: Numbers, end: Numbers) -> "GroupedIntervals":
        """Sort intervals, given in any order with the number of their group, from 0."""
        order = np.lexsort((start, group))
        group, start, end = group[order], start[order], end[order]
        # Find the latest end so far by its rank among all ends. Adding group * n lets each group start anew.
        by_end = np.argsort(end, kind="stable")
        place = np.empty(len(end), np.int64)
        place[by_end] = np.arange(len(end))
        latest = end[by_end[np.maximum.accumulate(place + group * len(end)) - group * len(end)]]
        before = np.concatenate((start[:1], latest[:-1]))
        first = np.flatnonzero(np.diff(group)) + 1
        before[first] = start[first]
        return cls(order, group, start, end, before)

    def covered(self, groups: int) -> Numbers:
        """Return the length of each group's union: time that several intervals cover counts once."""
        lengths = np.zeros(groups, np.int64)
        np.add.at(lengths, self.group, np.maximum(self.end - np.maximum(self.start, self.before), 0))
        return lengths


class CoveredTime:
    """Compute how much of any period the intervals of a group cover. Times must not be negative."""

    def __init__(self, intervals: GroupedIntervals, longest: int) -> None:
        """Prepare the sums. ``longest`` is an upper bound of all times in the intervals and in later queries."""
        self._scale = longest + 1
        start = np.maximum(intervals.start, intervals.before)
        lengths = np.maximum(intervals.end - start, 0)
        own = lengths > 0
        self._begins = intervals.group[own] * self._scale + start[own]
        self._lengths = lengths[own]
        self._sums = np.concatenate(([0], np.cumsum(self._lengths)))

    def between(self, group: Numbers, start: Numbers, end: Numbers) -> Numbers:
        """Return, for each entry of the three columns, the time in [start, end) that its group covers."""
        return self._until(group, end) - self._until(group, start)

    def _until(self, group: Numbers, time: Numbers) -> Numbers:
        moment = group * self._scale + time
        begun = np.searchsorted(self._begins, moment, side="right")
        if not len(self._begins):
            return np.zeros(len(moment), np.int64)
        last = np.maximum(begun - 1, 0)
        inside = np.minimum(moment - self._begins[last], self._lengths[last])
        return np.where(begun > 0, self._sums[last] + inside, 0)
