"""Choose the thread, of several, that a span is drawn on, so that no two on one thread overlap."""

from heapq import heappop, heappush

import numpy as np

from results.records.span_columns import Column


def assign_lanes(place: Column, start_ns: Column, end_ns: Column) -> Column:
    """Assign a lane to every span, from 0 at each place, such that no two spans of a lane have a moment in common.

    A place takes as many lanes as there are spans at the same time, no more, and each span the lowest that is free.
    A span without length counts as one of a nanosecond, so that nothing else begins on its lane when it does.
    O(n log n).
    """
    lane = np.zeros(len(place), np.int64)
    last_ns = np.maximum(end_ns, start_ns + 1)
    order = np.lexsort((start_ns, place))
    same = place[order][1:] == place[order][:-1]
    crowded = np.unique(place[order][1:][same & (start_ns[order][1:] < last_ns[order][:-1])])
    order = order[np.isin(place[order], crowded)]
    rows = zip(place[order].tolist(), start_ns[order].tolist(), last_ns[order].tolist(), strict=True)
    found = np.empty(len(order), np.int64)
    at, taken, free, used = -1, list[tuple[int, int]](), list[int](), 0
    for position, (where, start, end) in enumerate(rows):
        if where != at:
            at, taken, free, used = where, [], [], 0
        while taken and taken[0][0] <= start:
            heappush(free, heappop(taken)[1])
        if not free:
            free, used = [used], used + 1
        own = heappop(free)
        heappush(taken, (end, own))
        found[position] = own
    lane[order] = found
    return lane
