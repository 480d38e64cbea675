"""Compute when iterations took place, how long they took, and the throughput in tokens per second."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from results.metrics.numbering import is_among, numbered
from results.records.span_log import ALL_REDUCE, COMPUTE_KINDS, ITERATION

NS_PER_S = 1_000_000_000


class Window(NamedTuple):
    """A period of a trial, in nanoseconds since its start."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """End minus start."""
        return self.end_ns - self.start_ns


def iteration_windows(spans: pd.DataFrame) -> pd.DataFrame:
    """Return when each iteration took place: columns start_ns and end_ns, indexed by iteration.

    An iteration lasts from the earliest start of its compute and all-reduce spans to their latest end, over all GPUs of
    the trial. Where ranks state their iterations themselves, by spans of the kind ``iteration``, one after the other,
    it lasts from the latest start of these spans to their latest end: the trial has done an iteration once its last
    rank has, and the iterations of a trial add up to its time.
    """
    stated = is_among(spans["kind"], (ITERATION,))
    work = stated if stated.any() else is_among(spans["kind"], (*COMPUTE_KINDS, ALL_REDUCE))
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


def measured_window(
    windows: pd.DataFrame, warmup_iterations: int, profiled_iterations: int | None = None
) -> Window | None:
    """Return the window in which GPUs' time is measured, None if there is none.

    It lasts from the start of the first iteration after warm-up to the end of the last. Where a profiler records a
    program, GPUs' time is known only of its last ``profiled_iterations``: then they are the window.
    """
    measured = windows[windows.index >= warmup_iterations]
    if profiled_iterations is not None:
        measured = measured[len(measured) - min(profiled_iterations, len(measured)) :]
    if measured.empty:
        return None
    return Window(int(measured["start_ns"].min()), int(measured["end_ns"].max()))


def iteration_times_s(
    windows: pd.DataFrame, warmup_iterations: int, profiled_iterations: int | None = None
) -> list[float]:
    """Return the duration of every measured iteration, in order, in seconds: end minus start of its window.

    Measured are those after warm-up, without the last ``profiled_iterations``: a profiler slows what it records.
    """
    measured = windows[windows.index >= warmup_iterations]
    measured = measured[: len(measured) - min(profiled_iterations or 0, len(measured))]
    return [float(length_ns) / NS_PER_S for length_ns in measured["end_ns"] - measured["start_ns"]]


def iteration_time_s(times_s: list[float]) -> float | None:
    """Return the median of the iteration times in seconds; None if nothing was measured."""
    return float(np.median(times_s)) if times_s else None


def over_bound(time_s: float | None, bound_s: float | None) -> float | None:
    """Return the median iteration time divided by the lower bound of the trial; None if either is unknown.

    A time that was measured may be below 1, by the noise of its clock.
    """
    return time_s / bound_s if time_s and bound_s else None


def tokens_per_s(tokens_per_iteration: float | None, time_s: float | None) -> float | None:
    """Return the tokens of one iteration divided by the median iteration time; None if either is unknown."""
    return tokens_per_iteration / time_s if tokens_per_iteration and time_s else None
