"""Each run of a report is read once for all its features, and known by its label and its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.contents import CHARTS, charts_of, every_chart, own_charts
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns


@pytest.fixture
def run(build_run: Callable[..., Path]) -> Run:
    return results.load(build_run(latencies=("10ms",)))


def test_a_function_reads_each_run_once_and_its_rows_follow_each_other(run: Run) -> None:
    read: list[str] = []

    def labels(own: ReportedRun) -> list[str]:
        read.append(own.label)
        return [own.label, "more"]

    reported = ReportedRuns.of({"old": run, "new": run})
    assert reported.rows(labels) == reported.rows(labels) == ["old", "more", "new", "more"]
    assert read == ["old", "new"]


def test_a_clock_is_that_of_its_run_alone(run: Run) -> None:
    reported = ReportedRuns.of({"old": run, "new": run}, [None, run])
    assert [own.clock for own in reported.runs] == [None, run]
    assert [own.clock for own in ReportedRuns.of({"old": run}).runs] == [None]


def test_a_timeline_is_among_the_charts_of_a_single_run_and_in_the_own_sections_of_several(run: Run) -> None:
    for labels in (["only"], ["old", "new"]):
        reported = ReportedRuns.of(dict.fromkeys(labels, run))
        styles = Styles.of(dict.fromkeys(labels, run.variants))
        names = [chart.name for chart in charts_of(CHARTS, reported, styles)]
        own = [[chart.name for chart in own_charts(each, styles)] for each in reported.runs]
        assert ("timeline" in names, own) == (
            (True, [[]]) if len(labels) == 1 else (False, [["run-0-timeline"], ["run-1-timeline"]])
        )
        assert [chart.name for chart in every_chart(reported, styles)] == [
            *names,
            *(name for each in own for name in each),
        ]
