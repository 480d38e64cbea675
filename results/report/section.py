"""A section of the report on one feature of all runs, and the forms of what is shown of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns
from wanbed.results.report.table import Table

ChartOf = Callable[[ReportedRuns, Styles], Chart | None]
"""A chart of all runs, None where there is nothing to draw."""

OwnChartOf = Callable[[ReportedRun, Styles], Chart | None]
"""A chart of one run, None where there is nothing to draw."""

CommonTableOf = Callable[[ReportedRuns], Table | None]
"""A table of all runs, None where there is nothing to show."""

TableOf = Callable[[ReportedRun], Table | None]
"""A table of one run, None where there is nothing to show."""

WarningsOf = Callable[[ReportedRun], Sequence[str]]
"""Sentences that a reader must know before a run's figures."""


def no_warning(_: ReportedRuns) -> str:
    """Warn of nothing."""
    return ""


@dataclass(frozen=True)
class Section:
    """A section: tables, charts beneath them, and further tables below. Without any of these it is left out.

    Each is under its own title where that is not the section's. ``warning`` stands before them.
    """

    title: str
    tables: tuple[CommonTableOf, ...]
    charts: tuple[ChartOf, ...]
    tables_below: tuple[CommonTableOf, ...] = ()
    warning: Callable[[ReportedRuns], str] = no_warning
