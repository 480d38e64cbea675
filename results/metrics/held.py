"""Count the microbatches that a stage held at once, by the spans of its ranks."""

import numpy as np
import pandas as pd

from wanbed.results.metrics.intervals import is_among

_BEGINS, _ENDS, _SPLIT = ("forward",), ("backward", "backward_weight"), ("backward_weight",)


def most_held(spans: pd.DataFrame) -> dict[int, int]:
    """Return of each stage the most microbatches that one of its ranks held at once.

    A microbatch is held from the start of its forward to the end of its backward, or of its weight part where the
    backward is split. Stages without forwards are left out. Parts of a stage count as microbatches of their own.
    """
    kinds = spans["kind"]
    begins = is_among(kinds, _BEGINS)
    splits = set(spans["stage"].to_numpy(np.int64)[is_among(kinds, _SPLIT)].tolist())
    stages, ranks = (spans[name].to_numpy(np.int64) for name in ("stage", "rank"))
    ends = is_among(kinds, _ENDS)
    if splits:
        ends = ends & (is_among(kinds, _SPLIT) | ~np.isin(stages, list(splits)))
    found: dict[int, int] = {}
    if not begins.any():
        return found
    times_ns = np.concatenate((spans["start_ns"].to_numpy(np.int64)[begins], spans["end_ns"].to_numpy(np.int64)[ends]))
    steps = np.concatenate((np.ones(begins.sum(), np.int64), np.full(ends.sum(), -1)))
    of_rank, of_stage = (np.concatenate((column[begins], column[ends])) for column in (ranks, stages))
    # What ends at the time at which another begins is no longer held.
    order = np.lexsort((steps, times_ns, of_rank))
    rank, held = of_rank[order], np.cumsum(steps[order])
    first = np.flatnonzero(np.concatenate(([True], rank[1:] != rank[:-1])))
    before = held[first] - steps[order][first]
    held -= np.repeat(before, np.diff(np.append(first, len(rank))))
    for stage, most in zip(of_stage[order].tolist(), held.tolist(), strict=True):
        found[stage] = max(found.get(stage, 0), most)
    return dict(sorted(found.items()))
