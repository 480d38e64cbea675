"""Choose the sweep point, and the trial in it, that represent a run in charts that cannot show all of them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, swept_values
from wanbed.results.report.charts.drawing.swept_axis import latency_ms


def representative_point(run: Run) -> int | None:
    """Return the sweep point with the most measured variants; of several, the one with the highest latency.

    None if nothing was measured.
    """
    variants: dict[int, set[str]] = {}
    for trial, measured in zip(run.trials, _times_s(run).notna(), strict=True):
        if measured:
            variants.setdefault(trial.point, set()).add(trial.variant)
    return max(
        variants,
        key=lambda point: (len(variants[point]), latency_ms(swept_values(run.manifest, point)) or 0, point),
        default=None,
    )


def closest_to_median(values: "Sequence[float] | pd.Series[float]") -> int:
    """Return the position of the value that is closest to the median of all."""
    known = np.asarray(values, dtype=float)
    return int(np.argmin(np.abs(known - np.median(known))))


def measured_trials(run: Run, point: int, variant: str) -> list[StoredTrial]:
    """Return the repeats of one variant at one sweep point that have a measured iteration."""
    known = _times_s(run).notna()
    return [
        trial
        for trial, measured in zip(run.trials, known, strict=True)
        if measured and (trial.point, trial.variant) == (point, variant)
    ]


def typical_trial(run: Run, point: int, variant: str) -> StoredTrial | None:
    """Return the repeat whose iteration time is closest to the repeats' median; None if nothing was measured."""
    chosen = [trial.point == point and trial.variant == variant for trial in run.trials]
    times_s = _times_s(run)[chosen].dropna()
    return None if times_s.empty else run.trials[int(times_s.index[closest_to_median(times_s)])]


def _times_s(run: Run) -> "pd.Series[float]":
    """Return the iteration time of each trial; of a single iteration, which has none, the makespan."""
    return run.summary["iteration_time_s"].fillna(run.summary["makespan_s"])
