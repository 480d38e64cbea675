"""Extract one trial from a run: its rows of a data frame, and its measured window."""

import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import Window
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.reading.summaries.counted_windows import counted_window, counted_windows
from wanbed.results.reading.trial_rows import chosen_rows


def rows_of_trial(frame: pd.DataFrame, trial: StoredTrial) -> pd.DataFrame:
    """Return the trial's rows of a frame that has the columns sweep point, variant and repeat."""
    # Compare text last, in the few rows that are left: for a million rows it takes most of the time.
    of_numbers = (frame["sweep_point"].to_numpy() == trial.point) & (frame["repeat"].to_numpy() == trial.repeat)
    candidates = chosen_rows(frame, of_numbers)
    return chosen_rows(candidates, (candidates["variant"] == trial.variant).to_numpy(bool))


def measured_window(trial: StoredTrial, spans: pd.DataFrame) -> Window | None:
    """Return the window in which a trial's GPU time is measured, None if there is none. ``spans`` are the trial's."""
    if spans.empty:
        return None
    return counted_window(trial, counted_windows(trial, metrics.iteration_windows(spans)), spans)
