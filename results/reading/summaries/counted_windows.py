"""Find the iterations that a trial is about."""

import pandas as pd

from results import metrics
from results.metrics.jobs.fairness import while_all_ran
from results.reading.stored_trial import StoredTrial


def counted_windows(trial: StoredTrial, spans: pd.DataFrame) -> pd.DataFrame:
    """Return when each iteration took place, beside other jobs of those that count. ``spans`` are the trial's.

    Of replicas that synchronise seldom, those after warm-up are whole periods.
    """
    if trial.sync_every is not None:
        warmup = int(trial.settings.get("warmup_iterations") or 0)
        return metrics.whole_periods(metrics.synchronized_windows(spans), warmup, trial.sync_every)
    windows, until_ns = metrics.iteration_windows(spans), trial.while_all_ran_ns
    return windows if until_ns is None else while_all_ran(windows, until_ns)
