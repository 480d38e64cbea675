"""Find which rank of a user's program kept the others waiting in a collective."""

import numpy as np

from wanbed.results.metrics.intervals import Numbers

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
