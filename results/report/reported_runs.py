"""Read the runs of a report into its tables and the rows of its charts, and choose what figures show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from wanbed.results.reading.headline import HeadlineRow, headline
from wanbed.results.reading.run import Run, load_run, run_labels
from wanbed.results.reading.selection import NoSuchTrialError, Selection, swept_points
from wanbed.results.report.averages_table import averages_table
from wanbed.results.report.background_table import background_table
from wanbed.results.report.calibration_table import calibration_table
from wanbed.results.report.charts.gpu_time import GpuTimeShares, drawn_points, gpu_time_shares
from wanbed.results.report.charts.swept_points import DrawnPoint
from wanbed.results.report.device_table import device_table
from wanbed.results.report.fault_table import fault_table
from wanbed.results.report.job_table import job_table
from wanbed.results.report.losses import LossSeries, loss_series
from wanbed.results.report.plan_outcome import PlanOutcome, plan_outcomes, plan_table
from wanbed.results.report.prefill import Impact, PrefillRow, impacts, prefill_rows
from wanbed.results.report.program_tables import program_tables
from wanbed.results.report.table import Table

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

    @property
    def points(self) -> list[str]:
        """The sweep points of all runs as text."""
        return list(dict.fromkeys(row.where for row in self.headline))

    @cached_property
    def drawn_shares(self) -> list[GpuTimeShares]:
        """The GPU time shares in those sweep points that a chart of them can show."""
        points = self.points
        bars_a_point = len({(row.run, row.variant) for row in self.headline})
        chosen = {points[number] for number in drawn_points(range(len(points)), bars_a_point)}
        shares: list[GpuTimeShares] = []
        for label, run in self.by_label.items():
            own = sorted({row.point for row in self._headline_of(label) if row.where in chosen})
            shares += gpu_time_shares(run, label, own)
        return shares

    def tables(self, label: str) -> list[Table]:
        """Return the tables that one run has, which the page, Markdown and JSON have alike, in this order."""
        run = self.by_label[label]
        found = (
            *program_tables(run),
            fault_table(run),
            averages_table(run),
            job_table(run, self._headline_of(label)),
            background_table(run),
            plan_table(self.plans[label]),
            device_table(run),
            calibration_table(run),
        )
        return [table for table in found if table is not None]

    def _headline_of(self, label: str) -> list[HeadlineRow]:
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
