"""Compute the union of intervals and the gaps between them, for several groups at once, in O(n log n) with NumPy.

Groups are numbers: ``numbered`` and ``text_codes`` number the distinct values of a column.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

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
        order = _order(group, start)
        group, start, end = group[order], start[order], end[order]
        other = np.diff(group) != 0
        latest = end if (other | (np.diff(end) >= 0)).all() else _latest_end(group, end)
        before = np.concatenate((start[:1], latest[:-1]))
        first = np.flatnonzero(other) + 1
        before[first] = start[first]
        return cls(order, group, start, end, before)

    def covered(self, groups: int) -> Numbers:
        """Return the length of each group's union: time that several intervals cover counts once."""
        lengths = np.zeros(groups, np.int64)
        if len(self.group):
            first = np.concatenate(([0], np.flatnonzero(np.diff(self.group)) + 1))
            own = np.maximum(self.end - np.maximum(self.start, self.before), 0)
            lengths[self.group[first]] = np.add.reduceat(own, first)
        return lengths


def _order(group: Numbers, start: Numbers) -> Numbers:
    """Return what ``np.lexsort((start, group))`` returns."""
    # Spans of a rank are written in the order of their starts. Numbers of 16 bits are sorted in O(n).
    few = int(group.max(initial=0)) < 2**16
    order = np.argsort(group.astype(np.uint16) if few else group, kind="stable")
    by_group, by_start = group[order], start[order]
    if ((by_group[1:] != by_group[:-1]) | (by_start[1:] >= by_start[:-1])).all():
        return order
    # Each group has a few stretches that are in order, which a stable sort of one number an interval merges.
    joined = _joined(by_group, by_start)
    return np.lexsort((start, group)) if joined is None else order[np.argsort(joined, kind="stable")]


def _joined(group: Numbers, time: Numbers) -> Numbers | None:
    """Return one number for each group and time, ordered as they are; None if 64 bits do not suffice for that."""
    least = int(time.min())
    times = int(time.max()) - least + 1
    return None if (int(group.max()) + 1) * times > np.iinfo(np.int64).max else group * times + (time - least)


def _latest_end(group: Numbers, end: Numbers) -> Numbers:
    """Return for each interval the latest end of its group so far."""
    if (joined := _joined(group, end)) is not None:
        by_group: Numbers = np.maximum.accumulate(joined)
        return by_group - (joined - end)
    # Find it by its rank among all ends. Adding group * n lets each group start anew.
    by_end = np.argsort(end, kind="stable")
    place = np.empty(len(end), np.int64)
    place[by_end] = np.arange(len(end))
    latest: Numbers = end[by_end[np.maximum.accumulate(place + group * len(end)) - group * len(end)]]
    return latest


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


MOST_KEYS = 2**20
"""Up to this many values more than a column has entries, a table of all possible values spares sorting the column."""


def numbered(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the distinct values, ascending, and the position of each entry's value among them, as ``np.unique``."""
    if not len(values) or values.min() < 0 or int(values.max()) > len(values) + MOST_KEYS:
        found, positions = np.unique(values, return_inverse=True)
        return found, positions.astype(np.int64)
    occurs = np.zeros(int(values.max()) + 1, bool)
    occurs[values] = True
    return np.flatnonzero(occurs).astype(values.dtype), (np.cumsum(occurs) - 1)[values]


def is_among(texts: "pd.Series[str]", names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return for each text whether it is one of the names."""
    if isinstance(texts.dtype, pd.CategoricalDtype):
        codes = texts.cat.codes.to_numpy()
        among = np.zeros(len(codes), bool)
        for code in np.flatnonzero(texts.cat.categories.isin(names)):
            among |= codes == code
        return among
    return texts.isin(names).to_numpy(bool)


def text_codes(texts: "pd.Series[str]") -> tuple[Numbers, list[str]]:
    """Return for each text its position among the sorted names, and the names, of which some may not occur."""
    if isinstance(texts.dtype, pd.CategoricalDtype):
        names: list[str] = texts.cat.categories.to_numpy(object).tolist()
        codes = texts.cat.codes.to_numpy()
        if names == sorted(names):
            return codes.astype(np.int64), names
    codes, found = pd.factorize(texts.astype("str"), sort=True)
    return codes.astype(np.int64), [str(name) for name in found]
