"""Compute the pace of replicas that wait for none of the others, each of which has its own count of iterations.

A star with a quorum goes on without late replicas. An iteration of all of them together then ends with the slowest
replica, which says nothing of how much the others have trained meanwhile.
"""

from typing import NamedTuple

import pandas as pd

from wanbed.results.metrics.iterations import NS_PER_S, Window
from wanbed.results.metrics.numbering import is_among
from wanbed.results.records.span_log import PREFILL


class OwnClocks(NamedTuple):
    """The training of ``replicas`` in a window: ``finished`` counts the iterations that any of them ended in it.

    ``slowest_s`` is the mean time of an iteration of the slowest replica, over its own measured iterations.
    """

    window: Window
    replicas: int
    finished: int
    slowest_s: float

    @property
    def iteration_time_s(self) -> float:
        """The window times the replicas, divided by the iterations that they finished."""
        return self.window.length_ns / NS_PER_S * self.replicas / self.finished


def own_clocks(spans: pd.DataFrame, first: int) -> OwnClocks | None:
    """Return what the replicas trained from when all had ended their iterations before ``first`` until one was through.

    One that was lost, and did not come back, ends nothing: it counts as a replica all the same. None if no replica
    finished an iteration in that window, or none was through.
    """
    own = spans[~is_among(spans["kind"], (PREFILL,))]
    if own.empty:
        return None
    # An iteration ends with what belongs to it, or with one before it if that is later.
    ends_ns = own.groupby(["pipeline", "iteration"])["end_ns"].max().groupby(level="pipeline").cummax()
    of_replicas = {pipeline: each.droplevel("pipeline") for pipeline, each in ends_ns.groupby(level="pipeline")}
    last = max((int(each.index.max()) for each in of_replicas.values()), default=-1)
    through = [each for each in of_replicas.values() if last in each.index and first - 1 in each.index]
    if not through or last < first:
        return None
    begin_ns = max(int(each[first - 1]) for each in through)
    window = Window(begin_ns, min(int(each[last]) for each in through))
    finished = int(((ends_ns > window.start_ns) & (ends_ns <= window.end_ns)).sum())
    if not finished or window.length_ns <= 0:
        return None
    slowest_ns = max((int(each[last]) - int(each[first - 1])) / int((each.index >= first).sum()) for each in through)
    return OwnClocks(window, len(of_replicas), finished, slowest_ns / NS_PER_S)
