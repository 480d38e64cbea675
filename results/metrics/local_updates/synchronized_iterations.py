"""Compute the iterations of replicas that train alone and synchronise seldom.

Such a replica does not wait for the others after each iteration, so that iterations of different replicas overlap, and
few of them wait for a synchronisation. So a trial has done an iteration once its last replica has, and figures are
means over whole periods of ``sync_every`` iterations, in each of which everything is synchronised once.
"""

import numpy as np
import pandas as pd

from results.metrics.iterations import iteration_windows
from results.metrics.numbering import is_among
from results.records.span_log import ALL_REDUCE, COMPUTE_KINDS


def synchronized_windows(spans: pd.DataFrame) -> pd.DataFrame:
    """Return when the trial did each iteration: columns start_ns and end_ns, indexed by iteration.

    An iteration ends when the last GPU has ended its compute spans and the synchronisation that it applies then. It
    begins where the one before it ends, the first one at its first compute span. So lengths add up to the trial's time.
    """
    windows = iteration_windows(spans)
    if windows.empty:
        return windows
    first = is_among(spans["kind"], COMPUTE_KINDS) & (spans["iteration"] == windows.index[0]).to_numpy(bool)
    end_ns = np.maximum.accumulate(windows["end_ns"].to_numpy(np.int64))
    begin_ns = int(spans["start_ns"].to_numpy(np.int64)[first].min())
    start_ns = np.concatenate(([begin_ns], end_ns[:-1]))
    return pd.DataFrame({"start_ns": start_ns, "end_ns": end_ns}, index=windows.index)


def whole_periods(windows: pd.DataFrame, warmup_iterations: int, sync_every: int) -> pd.DataFrame:
    """Return the windows without those that are measured beyond the last whole period of ``sync_every`` iterations."""
    measured = int((windows.index >= warmup_iterations).sum())
    return windows[: len(windows) - measured % sync_every]


def mean_iteration_time_s(times_s: list[float]) -> float | None:
    """Return the mean of the iteration times in seconds; None if nothing was measured."""
    return float(np.mean(times_s)) if times_s else None


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
