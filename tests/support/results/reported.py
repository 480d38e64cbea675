"""Runs of a report of which rows are given, instead of what would be read of their files."""

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

from wanbed.results.reading.headline import HeadlineRow
from wanbed.results.reading.run import Run
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns, headline_rows


def with_rows(read: Callable[[ReportedRun], list[Any]], rows: Sequence[Any]) -> ReportedRuns:
    """Runs of which this function reads these rows, whatever run each of them names."""
    return ReportedRuns((ReportedRun(Mock(spec=Run), known={read: list(rows)}),))


def with_headline(rows: Sequence[HeadlineRow]) -> ReportedRuns:
    """Runs whose main table has these rows."""
    return with_rows(headline_rows, rows)
