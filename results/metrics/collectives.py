"""Measure the collectives of a user's program: how long they took, what hid them, and who kept the others waiting."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from wanbed.results.metrics.intervals import GroupedIntervals, Numbers
from wanbed.results.records.span_log import COLLECTIVE_KINDS, COMPUTE_KINDS

UNMATCHED = -1


def group_size(group: str) -> int:
    """Return the number of ranks in a process group that is written like ``0,1,2``; 0 if it is not known."""
    return len(group.split(",")) if group else 0


def last_to_begin(
    *, rank: Numbers, kind: Numbers, group: Numbers, size: Numbers, iteration: Numbers, start_ns: Numbers
) -> Numbers:
    """Return for each span of a collective the position of that rank's span which began last, ``UNMATCHED`` if unknown.

    The n-th span of one kind and group in an iteration is the same collective on every rank. It is unknown if the
    ranks have different numbers of them, or if spans of fewer ranks are there than ``size``, the group's, where that
    is not 0. Kinds and groups are numbered in any way.
    """
    spans = len(rank)
    if not spans:
        return np.zeros(0, np.int64)
    _, series = np.unique(np.stack((kind, group, iteration)), axis=1, return_inverse=True)
    order = np.lexsort((start_ns, rank, series.ravel()))
    of_series, of_rank = series.ravel()[order], rank[order]
    first = np.append(True, (np.diff(of_series) != 0) | (np.diff(of_rank) != 0))
    begins = np.flatnonzero(first)
    number = np.arange(spans) - begins[np.cumsum(first) - 1]

    counts = np.diff(np.append(begins, spans))
    fewest, most = np.full(of_series.max() + 1, spans), np.zeros(of_series.max() + 1, np.int64)
    np.minimum.at(fewest, of_series[begins], counts)
    np.maximum.at(most, of_series[begins], counts)
    ranks = np.bincount(of_series[begins], minlength=len(fewest))
    known = (fewest == most)[of_series] & ((size[order] == 0) | (ranks[of_series] == size[order]))

    operation = of_series * spans + number
    by_start = np.lexsort((start_ns[order], operation))
    ends = np.append(np.diff(operation[by_start]) != 0, True)
    latest = order[by_start[ends]]
    found = latest[np.searchsorted(operation[by_start[ends]], operation)]
    last = np.empty(spans, np.int64)
    last[order] = np.where(known, found, UNMATCHED)
    return last


@dataclass(frozen=True)
class CollectiveTime:
    """The collectives of one kind and process group: means over the group's ranks and the profiled iterations.

    ``count`` and ``size_bytes`` are those of a rank and iteration. Of ``time_ns``, in which at least one was under way,
    no computation hid ``exposed_ns``, and for ``waited_ns`` a rank waited for another one to begin.
    ``last`` counts how often each rank was the last to begin. Both are None if the ranks' collectives do not match.
    """

    kind: str
    group: str
    ranks: int
    count: float
    smallest_bytes: int
    largest_bytes: int
    size_bytes: float
    time_ns: float
    exposed_ns: float
    waited_ns: float | None
    last: Mapping[int, int] | None

    @property
    def slowest_rank(self) -> int | None:
        """The rank that was the last to begin most often; None if that is not known."""
        return max(self.last, key=lambda rank: (self.last or {})[rank]) if self.last else None


def collective_times(spans: pd.DataFrame, iterations: Numbers) -> list[CollectiveTime]:
    """Return the collectives in these iterations of a program, those that computation hid least first."""
    profiled = spans[spans["iteration"].isin(iterations).to_numpy(bool)]
    own = profiled[profiled["kind"].isin(COLLECTIVE_KINDS).to_numpy(bool)].reset_index(drop=True)
    computing = profiled[profiled["kind"].isin(COMPUTE_KINDS).to_numpy(bool)]
    last = _last_to_begin(own)
    found = [
        _of_series(own, np.asarray(rows), last, computing=computing, iterations=len(iterations))
        for rows in own.groupby(["kind", "tensor"], sort=False, observed=True).indices.values()
    ]
    return sorted(found, key=lambda each: (-each.exposed_ns, -each.time_ns, each.kind, each.group))


def _last_to_begin(spans: pd.DataFrame) -> Numbers:
    size = spans["tensor"].map(group_size).to_numpy(np.int64)
    kind, group = (pd.factorize(spans[name])[0].astype(np.int64) for name in ("kind", "tensor"))
    numbers = {name: spans[name].to_numpy(np.int64) for name in ("rank", "iteration", "start_ns")}
    return last_to_begin(kind=kind, group=group, size=size, **numbers)


def _of_series(
    spans: pd.DataFrame, rows: Numbers, last: Numbers, *, computing: pd.DataFrame, iterations: int
) -> CollectiveTime:
    """Return the figures of the spans in these rows, which are of one kind and group."""
    own, last = spans.iloc[rows], last[rows]
    ranks = pd.Index(own["rank"].unique())
    each = len(ranks) * iterations
    start_ns, end_ns = (own[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    rank = ranks.get_indexer(own["rank"]).astype(np.int64)
    beside = computing[computing["rank"].isin(ranks).to_numpy(bool)]
    of_compute = ranks.get_indexer(beside["rank"]).astype(np.int64)
    computes_ns, computed_ns = (beside[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    busy_ns = _covered_ns(of_compute, computes_ns, computed_ns, len(ranks))
    both_ns = _covered_ns(
        np.concatenate((of_compute, rank)),
        np.concatenate((computes_ns, start_ns)),
        np.concatenate((computed_ns, end_ns)),
        len(ranks),
    )
    matched = bool((last != UNMATCHED).all())
    last_start_ns = spans["start_ns"].to_numpy(np.int64)[last]
    waited_ns = _covered_ns(rank, start_ns, np.clip(last_start_ns, start_ns, end_ns), len(ranks))
    operations = spans["rank"].to_numpy()[np.unique(last)]
    sizes = own["size_bytes"]
    return CollectiveTime(
        str(own["kind"].iloc[0]),
        str(own["tensor"].iloc[0]),
        len(ranks),
        len(own) / each,
        int(sizes.min()),
        int(sizes.max()),
        float(sizes.sum()) / each,
        _covered_ns(rank, start_ns, end_ns, len(ranks)) / each,
        (both_ns - busy_ns) / each,
        waited_ns / each if matched else None,
        dict(Counter(map(int, operations))) if matched else None,
    )


def _covered_ns(group: Numbers, start_ns: Numbers, end_ns: Numbers, groups: int) -> int:
    """Return the length of the union of each group's intervals, summed over the groups."""
    return int(GroupedIntervals.of(group, start_ns, end_ns).covered(groups).sum())
