"""Divide a data frame that has the columns sweep point, variant and repeat by its trials, without copying its rows."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.records.trial_id import TrialId


def rows_by_trial(frame: pd.DataFrame) -> dict[TrialId, pd.DataFrame]:
    """Return the rows of each trial, in their order. Takes O(n), and no copy where a trial's rows lie together."""
    if frame.empty:
        return {}
    changes = np.zeros(len(frame) - 1, bool)
    for name in ("sweep_point", "repeat"):
        numbers = frame[name].to_numpy()
        changes |= numbers[1:] != numbers[:-1]
    variants = _codes(frame["variant"])
    changes |= variants[1:] != variants[:-1]
    begins = np.concatenate(([0], np.flatnonzero(changes) + 1))
    ends = np.append(begins[1:], len(frame))
    pieces: dict[TrialId, list[pd.DataFrame]] = {}
    of_begins = (frame[name].to_numpy()[begins].tolist() for name in ("sweep_point", "repeat"))
    named = frame["variant"].iloc[begins].tolist()
    for point, repeat, variant, begin, end in zip(*of_begins, named, begins.tolist(), ends.tolist(), strict=True):
        pieces.setdefault(TrialId(point, variant, repeat), []).append(frame.iloc[begin:end])
    return {key: own[0] if len(own) == 1 else pd.concat(own) for key, own in pieces.items()}


def chosen_rows(frame: pd.DataFrame, flags: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """Return the flagged rows; they are not copied where they lie together."""
    count = int(np.count_nonzero(flags))
    begin = int(flags.argmax()) if count else 0
    chosen: pd.DataFrame = frame.iloc[begin : begin + count] if flags[begin : begin + count].all() else frame[flags]
    return chosen


def _codes(texts: "pd.Series[str]") -> npt.NDArray[np.int64]:
    return np.asarray(texts.cat.codes if isinstance(texts.dtype, pd.CategoricalDtype) else pd.factorize(texts)[0])
