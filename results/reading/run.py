"""Read a run back: manifest, traces and summary; and name it."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from wanbed.results.metrics import closest_to_median
from wanbed.results.reading.run_documents import read_manifest, read_trials
from wanbed.results.reading.stored_trial import StoredTrial, point_text, swept_values
from wanbed.results.reading.summary import calibrated_points, summarize
from wanbed.results.reading.trial_rows import DIVIDED, TrialRows, divided_by_trial
from wanbed.results.records.documents import SIMULATE, TIMES_DRAWN
from wanbed.results.records.schema import BACKGROUND_SAMPLES, CALIBRATION, LINK_CHANGES, LOSSES
from wanbed.results.records.table_files import coded_schema
from wanbed.results.records.trial_files import checked_spans, read_calibration, read_trial_table
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_table import TrialTable
from wanbed.results.records.trial_tables import SPANS_TABLE, TRIAL_TABLES
from wanbed.results.records.written_spans import WrittenSpans


@dataclass(frozen=True)
class Run:
    """A run: its manifest and what its finished trials left.

    Each of ``TRIAL_TABLES`` is a data frame, named as its file; ``further`` has those that are no field of this class
    by that name. The data frames have the columns of
    ``wanbed.results.records.schema``, and the rows of each trial together; their texts may be categoricals, whose
    categories are in alphabetical order. ``summary`` has the columns of
    ``wanbed.results.reading.summary.FIELDS``; its rows are in the order of ``trials``: by sweep point, then
    variant as the manifest lists them, then repeat.
    """

    path: Path
    manifest: Mapping[str, Any]
    trials: tuple[StoredTrial, ...]
    spans: pd.DataFrame
    link_samples: pd.DataFrame
    tcp_samples: pd.DataFrame
    prefill_requests: pd.DataFrame
    gpu_samples: pd.DataFrame
    calibration: pd.DataFrame
    summary: pd.DataFrame
    link_changes: pd.DataFrame = field(default_factory=LINK_CHANGES.empty_table().to_pandas)
    losses: pd.DataFrame = field(default_factory=LOSSES.empty_table().to_pandas)
    background_samples: pd.DataFrame = field(default_factory=BACKGROUND_SAMPLES.empty_table().to_pandas)
    further: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Mapping[TrialId, TrialRows]:
        """Each trial with its rows of the data frames of ``TRIAL_TABLES``."""
        return divided_by_trial(self.trials, {name: getattr(self, name) for name in DIVIDED}, self.further)

    @cached_property
    def calibrated_points(self) -> set[int]:
        """The sweep points whose links were measured and are all within tolerance; none of a simulation."""
        return calibrated_points(self.calibration)

    def values(self, point: int) -> dict[str, str]:
        """Return the swept path and value pairs of a sweep point, {} where nothing was swept."""
        return swept_values(self.manifest, point)

    def where(self, point: int) -> str:
        """Return the swept values of a sweep point as text for readers; empty if nothing was swept."""
        return point_text(self.values(point))

    @property
    def complete(self) -> bool:
        """Tell whether the run ended by itself; otherwise it still runs, failed or was killed."""
        return self.manifest.get("complete") is True

    @property
    def simulated(self) -> bool:
        """Tell whether this is a simulation, of which nothing was measured."""
        return self.manifest.get("engine") == SIMULATE

    def drawn(self, point: int) -> bool:
        """Return whether compute times of trials in that sweep point were drawn: then repeats differ on any engine."""
        return any(trial.facts.get(TIMES_DRAWN) for trial in self.trials if trial.point == point)

    def exact(self, point: int) -> bool:
        """Return whether another run would have the same times in that sweep point: simulated, nothing drawn."""
        return self.simulated and not self.drawn(point)

    @property
    def times_s(self) -> "pd.Series[float]":
        """The iteration time of each trial; of a single iteration, which has none, the makespan."""
        return self.summary["iteration_time_s"].fillna(self.summary["makespan_s"])

    def typical_trial(self, point: int, variant: str) -> StoredTrial | None:
        """Return the repeat whose iteration time is closest to the repeats' median; None if nothing was measured."""
        chosen = [trial.point == point and trial.variant == variant for trial in self.trials]
        times_s = self.times_s[chosen].dropna()
        return None if times_s.empty else self.trials[int(times_s.index[closest_to_median(times_s)])]

    @property
    def variants(self) -> tuple[str, ...]:
        """Variant names in the manifest's order, those of further trials after them."""
        listed = (str(variant.get("name")) for variant in self.manifest.get("variants", ()))
        return tuple(dict.fromkeys((*listed, *(trial.variant for trial in self.trials))))


def load_run(path: Path, *, coded: bool = False, written: WrittenSpans | None = None) -> Run:
    """Read a run's folder; trials that had not finished are left out.

    With ``coded``, texts of the spans are categoricals: a large run is read in a quarter of the time, into a third of
    the memory. Figures and reports are the same. Then spans that this process has ``written`` are not read back.

    Raises RunError, one line that starts with a path, if there is no run or a file of it is missing or damaged.
    """
    manifest = read_manifest(path)
    trials = read_trials(path, manifest)
    in_folders = sorted(trials, key=lambda trial: trial.folder)
    frames = {}
    for table in TRIAL_TABLES.values():
        codes = coded and table is SPANS_TABLE
        here = written if codes else None
        read = (_trial_table(trial, table, here, coded=codes) for trial in in_folders)
        frames[table.frame] = _frame(coded_schema(table.columns) if codes else table.columns, read)
    calibration = _frame(CALIBRATION, map(read_calibration, sorted(path.glob("calibration/*.parquet"))))
    summary = summarize(manifest, trials, frames["spans"], frames["link_samples"], calibration)
    own = {each.name for each in fields(Run)}
    further = {name: frames.pop(name) for name in list(frames) if name not in own}
    return Run(path, manifest, tuple(trials), calibration=calibration, summary=summary, further=further, **frames)


def _trial_table(trial: StoredTrial, table: TrialTable, written: WrittenSpans | None, *, coded: bool) -> pa.Table:
    spans = None if written is None else written.taken(trial.folder)
    if spans is None:
        return read_trial_table(trial.folder, trial.id, table.file, coded=coded)
    return checked_spans(spans, trial.folder, trial.id)


def _frame(schema: pa.Schema, tables: Iterable[pa.Table]) -> pd.DataFrame:
    joined = pa.concat_tables([pa.Table.from_batches([], schema), *tables], promote_options="default")
    # Each column of the table is given up as soon as its own of the data frame is there.
    frame = joined.to_pandas(split_blocks=True, self_destruct=True)
    for name, kind in frame.dtypes.items():
        if isinstance(kind, pd.CategoricalDtype) and not kind.categories.is_monotonic_increasing:
            # Sorting and grouping by them gives the same as by the texts.
            frame[name] = frame[name].cat.reorder_categories(sorted(kind.categories))
    return frame


_STAMP = re.compile(r"-([0-9]{8}T([0-9]{6}Z))-[0-9a-f]{8}")
"""The suffix of a run folder's name: the time when the run was created and the hash of its configuration."""


def run_name(run: Run) -> str:
    """Return the run's name from its manifest, or its folder's name if the manifest has none."""
    return str(run.manifest.get("name") or run.path.name)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Return a unique name for each run: the name in its manifest and, where runs share it, what distinguishes them.

    That is the engine; else the time in the folder's name, or the name of a folder that was renamed; else the run's
    position. If all runs share their name and engine, it is the time or folder name alone.
    """
    labels = [run_name(run) for run in runs]
    alike = len(set(labels)) == 1 and len({run.simulated for run in runs}) == 1
    if alike and len(set(_folders(runs))) == len(runs) > 1:
        return _folders(runs)
    for further in (_engines, _folders, _numbers):
        groups: dict[str, list[int]] = defaultdict(list)
        for position, label in enumerate(labels):
            groups[label].append(position)
        for positions in groups.values():
            suffixes = further([runs[position] for position in positions])
            if len(set(suffixes)) > 1:
                for position, suffix in zip(positions, suffixes, strict=True):
                    labels[position] = f"{labels[position]}, {suffix}"
    return labels


def _engines(runs: Sequence[Run]) -> list[str]:
    return ["simulated" if run.simulated else "emulated" for run in runs]


def _folders(runs: Sequence[Run]) -> list[str]:
    """Return the time in each folder's name, without the day if all share it; the whole name if it has no time."""
    names = [run.path.name for run in runs]
    stamps = [_STAMP.search(name) for name in names]
    one_day = len({stamp[1].partition("T")[0] for stamp in stamps if stamp}) == 1
    return [stamp[2 if one_day else 1] if stamp else name for name, stamp in zip(names, stamps, strict=True)]


def _numbers(runs: Sequence[Run]) -> list[str]:
    return [f"#{number}" for number in range(1, len(runs) + 1)]
