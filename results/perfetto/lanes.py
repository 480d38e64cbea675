"""Choose one of several threads for each span, so that no two spans on one thread overlap."""

from heapq import heappop, heappush

import numpy as np

from wanbed.results.records.span_columns import Column


def assign_lanes(place: Column, start_ns: Column, end_ns: Column) -> Column:
    """Return a lane for every span, numbered from 0 at each place, such that spans of a lane do not overlap.

    Each span gets the lowest free lane, so that a place has only as many lanes as it has spans at the same time. A span
    of length 0 counts as 1 ns long, so that no other span on its lane starts at the same time. O(n log n).
    """
    lane = np.zeros(len(place), np.int64)
    last_ns = np.maximum(end_ns, start_ns + 1)
    order = np.lexsort((start_ns, place))
    same = place[order][1:] == place[order][:-1]
    crowded = np.unique(place[order][1:][same & (start_ns[order][1:] < last_ns[order][:-1])])
    order = order[np.isin(place[order], crowded)]
    rows = zip(place[order].tolist(), start_ns[order].tolist(), last_ns[order].tolist(), strict=True)
    assigned = np.empty(len(order), np.int64)
    current, taken, free, used = -1, list[tuple[int, int]](), list[int](), 0
    for position, (of_place, start, end) in enumerate(rows):
        if of_place != current:
            current, taken, free, used = of_place, [], [], 0
        while taken and taken[0][0] <= start:
            heappush(free, heappop(taken)[1])
        if not free:
            free, used = [used], used + 1
        own = heappop(free)
        heappush(taken, (end, own))
        assigned[position] = own
    lane[order] = assigned
    return lane
