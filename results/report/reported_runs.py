"""Read the runs of a report into the rows that its tables and charts are made of, and choose what figures show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from wanbed.results.reading.headline import HeadlineRow, headline
from wanbed.results.reading.run import Run, load_run, run_labels
from wanbed.results.reading.selection import NoSuchTrialError, Selection, swept_points
from wanbed.results.report.charts.swept_points import DrawnPoint
from wanbed.results.report.losses import LossSeries, loss_series
from wanbed.results.report.plan_outcome import PlanOutcome, plan_outcomes
from wanbed.results.report.prefill import Impact, PrefillRow, impacts, prefill_rows

Row = TypeVar("Row")


@dataclass(frozen=True)
class ReportedRuns:
    """Runs by label, and of all of them the headline, the prefill, its impact on training, and what was learnt.

    ``drawn`` has by label the sweep point of charts that show one alone, None where nothing was measured.
    """

    by_label: Mapping[str, Run]
    headline: Sequence[HeadlineRow]
    prefill: Sequence[PrefillRow]
    impacts: Sequence[Impact]
    losses: Sequence[LossSeries]
    drawn: Mapping[str, DrawnPoint | None]

    @cached_property
    def plans(self) -> Mapping[str, Sequence[PlanOutcome]]:
        """The outcome of each planned trial, by the label of its run."""
        return {label: plan_outcomes(run) for label, run in self.by_label.items()}

    def headline_of(self, label: str) -> list[HeadlineRow]:
        """Return the headline of one run."""
        return [row for row in self.headline if row.run == label]

    @classmethod
    def of(cls, runs: Mapping[str, Run], clocks: Sequence[Run | None] | None = None) -> "ReportedRuns":
        """Read runs, which are given by label.

        ``clocks`` has for each the run of the same training whose clock times its losses, None for its own. Raise
        ClockError as ``loss_trials`` does.
        """

        def of_all(rows_of: Callable[[Run, str], list[Row]]) -> list[Row]:
            return [row for label, run in runs.items() for row in rows_of(run, label)]

        drawn = {label: DrawnPoint.of(run) for label, run in runs.items()}
        return cls(runs, of_all(headline), of_all(prefill_rows), of_all(impacts), loss_series(runs, clocks), drawn)


def labelled(runs: Sequence[Path | Run]) -> dict[str, Run]:
    """Return runs by label; each is a folder, or a run that was read already.

    Raise RunError, with one line as message, if a folder is no run or damaged.
    """
    loaded = [run if isinstance(run, Run) else load_run(run, coded=True) for run in runs]
    return dict(zip(run_labels(loaded), loaded, strict=True))


def chosen_trials(runs: Mapping[str, Run], points: Sequence[str], variants: Sequence[str]) -> dict[str, Run]:
    """Return the runs that have such trials, each with these alone; everything if nothing is chosen.

    Raise NoSuchTrialError if a point or a variant is in no run.
    """
    if not points and not variants:
        return dict(runs)
    chosen: dict[str, set[int]] = {}
    for variant in dict.fromkeys(variants) or [None]:
        fault: NoSuchTrialError | None = None
        found = False
        for label, run in runs.items():
            position = {trial.id: number for number, trial in enumerate(run.trials)}
            try:
                trials = Selection(points, variant).of(run.trials, swept_points(run.manifest))
            except NoSuchTrialError as absent:
                fault = fault or absent
                continue
            found = True
            chosen.setdefault(label, set()).update(position[trial.id] for trial in trials)
        if fault is not None and not found:
            raise fault
    return {label: _with_trials(runs[label], sorted(chosen[label])) for label in runs if label in chosen}


def _with_trials(run: Run, positions: Sequence[int]) -> Run:
    return replace(
        run,
        trials=tuple(run.trials[position] for position in positions),
        summary=run.summary.iloc[list(positions)].reset_index(drop=True),
    )
