"""Find the iterations that a trial is about."""

import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics.fairness import while_all_ran
from wanbed.results.reading.stored_trial import StoredTrial


def counted_windows(trial: StoredTrial, lone: pd.DataFrame) -> pd.DataFrame:
    """Return the successive windows of a trial's iterations, beside other jobs of those that count.

    ``lone`` are the trial's ``metrics.iteration_windows``. Of replicas that synchronise seldom, those that are measured
    are whole periods.
    """
    windows, until_ns = metrics.successive_windows(lone), trial.while_all_ran_ns
    if trial.sync_every is not None:
        return metrics.whole_periods(windows, trial.first_measured_iteration, trial.sync_every)
    return windows if until_ns is None else while_all_ran(windows, until_ns)


def clocks_of(trial: StoredTrial, spans: pd.DataFrame) -> metrics.OwnClocks | None:
    """Return what replicas with step clocks of their own trained; None of others, and where that is not known."""
    return metrics.own_clocks(spans, trial.first_measured_iteration) if trial.has_own_clocks else None


def counted_window(trial: StoredTrial, windows: pd.DataFrame, spans: pd.DataFrame) -> metrics.Window | None:
    """Return the window in which a trial's GPU time is measured, None if there is none.

    ``windows`` are the trial's ``counted_windows``, ``spans`` its spans. Where something failed, every GPU counts to
    its end, also one that is gone. Of replicas with step clocks of their own it is the window in which all trained.
    """
    if (clocks := clocks_of(trial, spans)) is not None:
        return clocks.window
    window = metrics.measured_window(windows, trial.first_measured_iteration, trial.profiled_iterations)
    return window if window is None or trial.faults is None else window._replace(iterations=None)
