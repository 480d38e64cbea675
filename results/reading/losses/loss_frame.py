"""The losses of a run's trials as one pandas data frame."""

from math import nan
from typing import Any

import pandas as pd

from wanbed.results.metrics.loss_curve import LossCurve
from wanbed.results.reading.losses.loss_trials import LossTrial, loss_trials
from wanbed.results.reading.run import Run
from wanbed.results.records.loss_columns import SPLITS

COLUMNS = (
    "variant",
    "repeat",
    "seed",
    "split",
    "iteration",
    "loss",
    "time_s",
    "tokens",
    "wan_bytes",
    "clock",
    "clock_run",
)
"""The columns that follow those of the swept paths."""


def loss_frame(run: Run, clock: Run | None = None) -> pd.DataFrame:
    """Return a row for each loss of each trial, the mean over its replicas, in the order of ``loss_trials``.

    A column for each swept path of the clock's sweep point stands first, with the values as the file has them.
    ``clock`` is measured, virtual or simulated, and ``clock_run`` the folder's name of its run, "" for the own one.
    Raise as ``loss_trials`` does.
    """
    trials = loss_trials(run, clock)
    swept = list(dict.fromkeys(path for trial in trials for path in trial.values))
    frames = [
        _rows(trial, split, curve, swept)
        for trial in trials
        for split in SPLITS
        if (curve := trial.curve(split)) is not None
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*swept, *COLUMNS])


def _rows(trial: LossTrial, split: str, curve: LossCurve, swept: list[str]) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "variant": trial.variant,
        "repeat": trial.repeat,
        "seed": trial.seed,
        "split": split,
        "iteration": curve.iterations,
        "loss": curve.loss,
        "time_s": curve.time_s,
        "tokens": nan if curve.tokens is None else curve.tokens,
        "wan_bytes": nan if curve.wan_bytes is None else curve.wan_bytes,
        "clock": trial.provenance.clock,
        "clock_run": trial.provenance.clock_run,
    }
    return pd.DataFrame({**{path: trial.values.get(path, "") for path in swept}, **columns})
