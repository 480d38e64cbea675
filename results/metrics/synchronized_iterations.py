"""Compute the iterations of replicas that train alone and synchronise seldom.

Few of them wait for a synchronisation. So figures are means over whole periods of ``sync_every`` iterations, in each of
which everything is synchronised once.
"""

import numpy as np
import pandas as pd

from wanbed.results.metrics.numbering import is_among
from wanbed.results.records.span_log import ALL_REDUCE, COMPUTE_KINDS


def whole_periods(windows: pd.DataFrame, first: int, sync_every: int) -> pd.DataFrame:
    """Return the windows without the last ones, so that those from ``first`` are whole periods of ``sync_every``."""
    measured = int((windows.index >= first).sum())
    return windows[: len(windows) - measured % sync_every]


def awaited(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the spans with all-reduces begun no earlier than when their rank has computed all but its optimizer steps.

    Before that the rank does not wait for them: they overlap with computation, or with bubbles that have other causes.
    """
    kinds = spans["kind"]
    summing = is_among(kinds, (ALL_REDUCE,))
    computing = is_among(kinds, tuple(kind for kind in COMPUTE_KINDS if kind != "optimizer"))
    done_ns = spans[computing].groupby(["rank", "iteration"])["end_ns"].max()
    own = pd.MultiIndex.from_frame(spans.loc[summing, ["rank", "iteration"]])
    begin_ns = spans["start_ns"].to_numpy(np.int64).copy()
    later_ns = done_ns.reindex(own, fill_value=0).to_numpy(np.int64)
    begin_ns[summing] = np.minimum(np.maximum(begin_ns[summing], later_ns), spans["end_ns"].to_numpy(np.int64)[summing])
    return spans.assign(start_ns=begin_ns)
