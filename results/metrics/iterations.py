"""Compute when iterations took place, how long they took, and the throughput in tokens per second.

An iteration's time is its period: training begins the next iteration before the last GPU has ended this one, so that
what a lone iteration lasts, its makespan, says less of a training's pace the more iterations overlap.

Of replicas that train alone and synchronise seldom, few iterations wait for a synchronisation. So their figures are
means over whole periods of ``sync_every`` iterations, in each of which everything is synchronised once.

A star with a quorum goes on without late replicas, and each replica has its own count of iterations. An iteration of
all of them together then ends with the slowest replica, which says nothing of how much the others have trained
meanwhile: ``own_clocks`` has the pace of each.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.intervals import is_among, numbered
from wanbed.results.records.span_log import ALL_REDUCE, COMPUTE_KINDS, ITERATION, PREFILL

NS_PER_S = 1_000_000_000


class Window(NamedTuple):
    """A part of a trial, in nanoseconds since its start.

    ``iterations`` are those that a window of whole iterations is made of, None of another.
    """

    start_ns: int
    end_ns: int
    iterations: range | None = None

    @property
    def length_ns(self) -> int:
        """End minus start."""
        return self.end_ns - self.start_ns


def iteration_windows(spans: pd.DataFrame) -> pd.DataFrame:
    """Return when each iteration took place: columns start_ns and end_ns, indexed by iteration.

    An iteration lasts from the earliest start to the latest end of all that belongs to it, over all GPUs of the trial:
    computation, messages, collectives, optimizer. Where ranks state their iterations themselves, by spans of the kind
    ``iteration``, one after the other, it lasts from the latest start of these spans to their latest end.
    """
    stated = is_among(spans["kind"], (ITERATION,))
    work = stated if stated.any() else ~is_among(spans["kind"], (PREFILL,))
    iterations, position = numbered(spans["iteration"].to_numpy()[work])
    begun_ns, ended_ns = (spans[name].to_numpy(np.int64)[work] for name in ("start_ns", "end_ns"))
    end_ns = np.full(len(iterations), np.iinfo(np.int64).min)
    np.maximum.at(end_ns, position, ended_ns)
    if stated.any():
        start_ns = np.full(len(iterations), np.iinfo(np.int64).min)
        np.maximum.at(start_ns, position, begun_ns)
    else:
        start_ns = np.full(len(iterations), np.iinfo(np.int64).max)
        np.minimum.at(start_ns, position, begun_ns)
    return pd.DataFrame({"start_ns": start_ns, "end_ns": end_ns}, index=pd.Index(iterations, name="iteration"))


def successive_windows(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the windows of a trial one after the other: each ends as before, or with one before it if that is later.

    An iteration begins where the one before it ends, the first one at its own start. So lengths are periods, and add up
    to the trial's time. ``windows`` are those of ``iteration_windows``.
    """
    if windows.empty:
        return windows
    end_ns = np.maximum.accumulate(windows["end_ns"].to_numpy(np.int64))
    start_ns = np.concatenate((windows["start_ns"].to_numpy(np.int64)[:1], end_ns[:-1]))
    return pd.DataFrame({"start_ns": start_ns, "end_ns": end_ns}, index=windows.index)


def measured_window(successive: pd.DataFrame, first: int, profiled_iterations: int | None = None) -> Window | None:
    """Return the window in which GPUs' time is measured, None if there is none.

    It lasts from the end of the last iteration before number ``first`` to the end of the last one. Where a profiler
    records a program, GPUs' time is known only of its last ``profiled_iterations``: then they are the window. Of a
    single iteration the window is that iteration.
    """
    measured = successive[successive.index >= first]
    if profiled_iterations is not None:
        measured = measured[len(measured) - min(profiled_iterations, len(measured)) :]
    if len(successive) == 1:
        measured = successive
    if measured.empty:
        return None
    whole = len(successive) > 1 and profiled_iterations is None
    iterations = range(int(measured.index[0]), int(measured.index[-1]) + 1) if whole else None
    return Window(int(measured["start_ns"].min()), int(measured["end_ns"].max()), iterations)


def counted_spans(spans: pd.DataFrame, window: Window) -> npt.NDArray[np.bool_]:
    """Return for each span whether a window counts it: if of its iterations, or if it ended within a window of others.

    What a window counts need not lie in it: an iteration's first spans may begin before the one before it has ended.
    """
    if window.iterations is None:
        counted = spans["end_ns"].between(window.start_ns, window.end_ns)
    else:
        counted = spans["iteration"].between(window.iterations[0], window.iterations[-1])
    flags: npt.NDArray[np.bool_] = counted.to_numpy(bool)
    return flags


def iteration_times_s(windows: pd.DataFrame, first: int, profiled_iterations: int | None = None) -> list[float]:
    """Return the length of every measured window, in order, in seconds: periods of successive windows, or makespans.

    Measured are the iterations from number ``first``, without the last ``profiled_iterations``: a profiler slows what
    it records.
    """
    measured = windows[windows.index >= first]
    measured = measured[: len(measured) - min(profiled_iterations or 0, len(measured))]
    return [float(length_ns) / NS_PER_S for length_ns in measured["end_ns"] - measured["start_ns"]]


def mean_time_s(times_s: list[float]) -> float | None:
    """Return the mean of the iterations' times in seconds; None if nothing was measured.

    Of periods it is the time from the end of the iteration before the measured ones to the end of the last one, by
    their number.
    """
    return float(np.mean(times_s)) if times_s else None


def median_time_s(times_s: list[float]) -> float | None:
    """Return the median of the iterations' times in seconds; None if nothing was measured."""
    return float(np.median(times_s)) if times_s else None


def closest_to_median(values: "Sequence[float] | pd.Series[float]") -> int:
    """Return the position of the value that is closest to the median of all."""
    known = np.asarray(values, dtype=float)
    return int(np.argmin(np.abs(known - np.median(known))))


def over_bound(time_s: float | None, bound_s: float | None) -> float | None:
    """Return the iteration time divided by its lower bound; None if either is unknown.

    It may be below 1 by the noise of a clock, and over few iterations if the one before them ended late.
    """
    return time_s / bound_s if time_s and bound_s else None


def tokens_per_s(tokens_per_iteration: float | None, time_s: float | None) -> float | None:
    """Return the tokens of one iteration divided by the iteration time; None if either is unknown."""
    return tokens_per_iteration / time_s if tokens_per_iteration and time_s else None


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
