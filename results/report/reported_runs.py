"""The runs of a report: what is read of each once for all that shows it, and what of them figures show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from wanbed.results.reading.headline import HeadlineRow, headline
from wanbed.results.reading.run import Run, load_run, run_labels
from wanbed.results.reading.selection import NoSuchTrialError, Selection, swept_points
from wanbed.results.report.charts.swept_points import DrawnPoint

Row = TypeVar("Row")
Read = TypeVar("Read")


@dataclass(frozen=True, eq=False)
class _ReadOnce:
    """Something of which features of the report read rows. ``known`` are those read so far, by the function."""

    known: dict[Callable[[Any], Any], Any] = field(default_factory=dict, kw_only=True, repr=False)

    def once(self, read: Callable[[Self], Read]) -> Read:
        """Return what a function reads of it, which is called once for all that show it."""
        if read not in self.known:
            self.known[read] = read(self)
        found: Read = self.known[read]
        return found


@dataclass(frozen=True, eq=False)
class ReportedRun(_ReadOnce):
    """A run under its label, at its ``position`` among ``of_runs`` of a report.

    ``clock`` is the run of the same training whose clock times its losses, None for its own.
    """

    run: Run
    label: str = ""
    clock: Run | None = None
    position: int = 0
    of_runs: int = 1

    @cached_property
    def drawn(self) -> DrawnPoint | None:
        """The sweep point of charts that show one alone, None where nothing was measured."""
        return DrawnPoint.of(self.run)


@dataclass(frozen=True, eq=False)
class ReportedRuns(_ReadOnce):
    """The runs of a report, in the order of the page."""

    runs: tuple[ReportedRun, ...]

    @classmethod
    def of(cls, runs: Mapping[str, Run], clocks: Sequence[Run | None] | None = None) -> "ReportedRuns":
        """Return runs that are given by label; ``clocks`` has the clock of each."""
        clock_of = dict(zip(runs, clocks or [None] * len(runs), strict=True))
        return cls(
            tuple(
                ReportedRun(run, label, clock_of[label], position, len(runs))
                for position, (label, run) in enumerate(runs.items())
            )
        )

    @property
    def several(self) -> bool:
        """Tell whether there are several runs, so that each is named."""
        return len(self.runs) > 1

    @property
    def by_label(self) -> dict[str, Run]:
        """The runs by label."""
        return {own.label: own.run for own in self.runs}

    def rows(self, read: Callable[[ReportedRun], Iterable[Row]]) -> list[Row]:
        """Return the rows that a function reads of each run, those of one run after those of another."""
        return [row for own in self.runs for row in own.once(read)]

    @property
    def headline(self) -> list[HeadlineRow]:
        """The rows of the report's main table."""
        return self.rows(headline_rows)

    @property
    def points(self) -> list[str]:
        """The sweep points of all runs as text."""
        return list(dict.fromkeys(row.where for row in self.headline))

    @property
    def drawn(self) -> dict[str, DrawnPoint | None]:
        """By label the sweep point of charts that show one alone, None where nothing was measured."""
        return {own.label: own.drawn for own in self.runs}


def headline_rows(own: ReportedRun) -> list[HeadlineRow]:
    """Return a run's rows of the report's main table."""
    return headline(own.run, own.label)


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
