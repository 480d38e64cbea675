"""Find what a run's frames have of one trial: its rows, the iterations that count, and the window that they measure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import Window
from wanbed.results.metrics.fairness import while_all_ran
from wanbed.results.reading.stored_trial import StoredTrial
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


def counted_windows(trial: StoredTrial, lone: pd.DataFrame) -> pd.DataFrame:
    """Return the successive windows of the iterations that count: beside other jobs, while all of them ran.

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


def spans_of_one_part(trial: StoredTrial, spans: pd.DataFrame) -> pd.DataFrame:
    """Return the spans of one of a trial's equal parts, whose times are those of all; all spans of other trials."""
    if trial.equal_parts == 1 or spans.empty:
        return spans
    ranks = spans["rank"].to_numpy()
    return chosen_rows(spans, ranks < (int(ranks.max()) + 1) // trial.equal_parts)


@dataclass(frozen=True, eq=False)
class TrialRows:
    """A trial with its rows of each of the run's data frames; ``further`` has them as that of the run has."""

    trial: StoredTrial
    spans: pd.DataFrame
    link_samples: pd.DataFrame
    link_changes: pd.DataFrame
    tcp_samples: pd.DataFrame
    gpu_samples: pd.DataFrame
    background_samples: pd.DataFrame
    prefill_requests: pd.DataFrame
    losses: pd.DataFrame
    further: Mapping[str, pd.DataFrame]

    @cached_property
    def window(self) -> Window | None:
        """The window in which the trial's GPU time is measured, None if there is none."""
        if self.spans.empty:
            return None
        windows = counted_windows(self.trial, metrics.iteration_windows(self.spans_of_part))
        return counted_window(self.trial, windows, self.spans_of_part)

    @cached_property
    def spans_of_part(self) -> pd.DataFrame:
        """The spans of one of the trial's equal parts, all spans where there are none."""
        return spans_of_one_part(self.trial, self.spans)


DIVIDED = tuple(field.name for field in fields(TrialRows) if field.name not in {"trial", "further"})
"""The data frames that ``TrialRows`` has as fields."""


def divided_by_trial(
    trials: Iterable[StoredTrial], frames: Mapping[str, pd.DataFrame], further: Mapping[str, pd.DataFrame]
) -> dict[TrialId, TrialRows]:
    """Return each trial with its rows of the frames, which are those of ``DIVIDED`` by name, and of further ones."""
    own, others = _divided(frames), _divided(further)
    return {trial.id: TrialRows(trial, **own(trial.id), further=others(trial.id)) for trial in trials}


def _divided(frames: Mapping[str, pd.DataFrame]) -> Callable[[TrialId], dict[str, pd.DataFrame]]:
    """Return a function that gives the rows of a trial, of each frame by name."""
    pieces = {name: (rows_by_trial(frame), frame.iloc[:0]) for name, frame in frames.items()}
    return lambda trial: {name: own.get(trial, none) for name, (own, none) in pieces.items()}
