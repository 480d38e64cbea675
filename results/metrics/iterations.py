"""Compute when iterations took place, how long they took, and the throughput in tokens per second."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from results.records.span_log import COMPUTE_KINDS

NS_PER_S = 1_000_000_000
ALL_REDUCE = "all_reduce"


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
    the trial.
    """
    work = spans["kind"].isin((*COMPUTE_KINDS, ALL_REDUCE)).to_numpy()
    iterations, position = np.unique(spans["iteration"].to_numpy()[work], return_inverse=True)
    start_ns = np.full(len(iterations), np.iinfo(np.int64).max)
    end_ns = np.full(len(iterations), np.iinfo(np.int64).min)
    np.minimum.at(start_ns, position, spans["start_ns"].to_numpy(np.int64)[work])
    np.maximum.at(end_ns, position, spans["end_ns"].to_numpy(np.int64)[work])
    return pd.DataFrame({"start_ns": start_ns, "end_ns": end_ns}, index=pd.Index(iterations, name="iteration"))


def measured_window(windows: pd.DataFrame, warmup_iterations: int) -> Window | None:
    """Return the window from the start of the first iteration after warm-up to the end of the last, None if none."""
    measured = windows[windows.index >= warmup_iterations]
    if measured.empty:
        return None
    return Window(int(measured["start_ns"].min()), int(measured["end_ns"].max()))


def iteration_times_s(windows: pd.DataFrame, warmup_iterations: int) -> list[float]:
    """Return the duration of every iteration after warm-up, in order, in seconds: end minus start of its window."""
    measured = windows[windows.index >= warmup_iterations]
    return [float(length_ns) / NS_PER_S for length_ns in measured["end_ns"] - measured["start_ns"]]


def iteration_time_s(times_s: list[float]) -> float | None:
    """Return the median of the iteration times in seconds; None if nothing was measured."""
    return float(np.median(times_s)) if times_s else None


def tokens_per_s(tokens_per_iteration: float | None, time_s: float | None) -> float | None:
    """Return the tokens of one iteration divided by the median iteration time; None if either is unknown."""
    return tokens_per_iteration / time_s if tokens_per_iteration and time_s else None
