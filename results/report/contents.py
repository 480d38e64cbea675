"""The contents of a report in the order of the page: charts, sections, warnings and tables, each by its function."""

from collections.abc import Iterable

from wanbed.results.comparison.run_description import warnings
from wanbed.results.report.averages_table import averages_table
from wanbed.results.report.background_table import background_table
from wanbed.results.report.calibration_table import calibration_table
from wanbed.results.report.charts.changing_links import changing_links_chart
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.gpu_time import gpu_time_chart
from wanbed.results.report.charts.heat_map import heat_map_chart
from wanbed.results.report.charts.iteration_time import iteration_time_chart
from wanbed.results.report.charts.link_throughput import link_throughput_chart
from wanbed.results.report.charts.timeline import own_timeline_chart, timeline_chart
from wanbed.results.report.connections import connections_chart, cut_warnings
from wanbed.results.report.device_table import device_table
from wanbed.results.report.fault_table import fault_table, fault_warnings
from wanbed.results.report.job_table import job_table
from wanbed.results.report.losses import LOSSES_SECTION
from wanbed.results.report.memory_table import memory_table
from wanbed.results.report.plan_outcome import plan_table, plan_warnings
from wanbed.results.report.prefill import PREFILL_SECTION
from wanbed.results.report.program_tables import collective_table, program_table
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns
from wanbed.results.report.section import ChartOf, CommonTableOf, OwnChartOf, Section, TableOf, WarningsOf
from wanbed.results.report.table import Table

CHARTS: tuple[ChartOf, ...] = (
    iteration_time_chart,
    heat_map_chart,
    gpu_time_chart,
    timeline_chart,
    link_throughput_chart,
    connections_chart,
    changing_links_chart,
)
"""The charts of all runs beneath the main table."""

SECTIONS: tuple[Section, ...] = (LOSSES_SECTION, PREFILL_SECTION)
"""The sections about one feature of all runs."""

OWN_CHARTS: tuple[OwnChartOf, ...] = (own_timeline_chart,)
"""The charts of a run's own section."""

WARNINGS: tuple[WarningsOf, ...] = (fault_warnings, cut_warnings, plan_warnings)
"""The warnings of a run, after those of its description."""

TABLES: tuple[TableOf, ...] = (
    program_table,
    collective_table,
    fault_table,
    averages_table,
    job_table,
    background_table,
    plan_table,
    memory_table,
    device_table,
    calibration_table,
)
"""The tables of a run's own section, which the page, Markdown and JSON have alike."""


def charts_of(charts: Iterable[ChartOf], reported: ReportedRuns, styles: Styles) -> list[Chart]:
    """Draw those of these charts of all runs that have data."""
    return [chart for draw in charts if (chart := draw(reported, styles)) is not None]


def tables_of(tables: Iterable[CommonTableOf], reported: ReportedRuns) -> list[Table]:
    """Return those of these tables of all runs that have rows."""
    return [table for tabulate in tables if (table := tabulate(reported)) is not None]


def own_charts(own: ReportedRun, styles: Styles) -> list[Chart]:
    """Draw the charts of a run's own section that have data."""
    return [chart for draw in OWN_CHARTS if (chart := draw(own, styles)) is not None]


def warnings_of(own: ReportedRun) -> list[str]:
    """Return what a reader must know before a run's figures: of the run itself, then of each feature."""
    return [*warnings(own.run), *(text for warn in WARNINGS for text in warn(own))]


def own_tables(own: ReportedRun) -> list[Table]:
    """Return the tables of a run's own section that have rows."""
    return [table for tabulate in TABLES if (table := tabulate(own)) is not None]


def every_chart(reported: ReportedRuns, styles: Styles) -> list[Chart]:
    """Draw the charts that have data, in the order of the page."""
    of_sections = (chart for section in SECTIONS for chart in section.charts)
    of_runs = (chart for own in reported.runs for chart in own_charts(own, styles))
    return [*charts_of((*CHARTS, *of_sections), reported, styles), *of_runs]
