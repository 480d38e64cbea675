"""Links that change are drawn as configured, beside what was measured."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.changing_links import changing_links_chart, configured_courses
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.reported_runs import ReportedRuns

BuildRun = Callable[..., Path]
S = 10**9


def changes(run: Run, *, node_pair_rate_bps: int | None = 50_000_000) -> pd.DataFrame:
    """From east to central in each trial: at first, down from 1 s on, up from 2 s on; training begins at 0.5 s."""
    rows = [
        {
            "sweep_point": trial.point,
            "variant": trial.variant,
            "repeat": trial.repeat,
            "due_ns": S // 2 + at_ns,
            "applied_ns": S // 2 + at_ns + late_ns,
            "source": "east",
            "destination": "central",
            "up": up,
            "latency_ns": 40_000_000,
            "rate_bps": 100_000_000,
            "node_pair_rate_bps": node_pair_rate_bps,
            "jitter_ns": 0,
            "loss": 0.0,
        }
        for trial in run.trials
        for at_ns, late_ns, up in ((0, 0, True), (S, 0, False), (2 * S, 3_000_000, True))
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def run(build_run: BuildRun) -> Run:
    found = results.load(build_run())
    return replace(found, link_changes=changes(found))


def test_a_course_counts_from_the_begin_of_training_and_knows_its_outages(run: Run) -> None:
    trial = run.trials[0]
    own = run.link_changes[run.link_changes["variant"] == trial.variant]
    courses, began_s = configured_courses(own[own["sweep_point"] == trial.point])
    course = courses["east", "central"]
    assert began_s == 0.5
    assert np.allclose(course.times_s, [0, 1, 2.003])
    assert course.outages_s(9.0) == [(1.0, pytest.approx(2.003))]
    assert course.latest_s == pytest.approx(0.003)
    assert np.allclose(course.latency_ms_at(np.array([-1.0, 5.0])), 40)


def test_links_that_change_are_drawn_with_what_was_measured(run: Run) -> None:
    chart = changing_links_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    assert "down" in [entry.label for entry in chart.legend]
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        assert ">rate, east to central<" in picture
        assert ">round trip, east and central<" in picture
        assert ">time since training began (s)<" in picture
    assert "links changed: east to central 2 times." in chart.reading
    assert "at most 3.00\u00a0ms after it was due" in chart.reading
    assert "synthetic" not in chart.reading


def test_a_run_whose_links_hold_has_no_chart(build_run: BuildRun) -> None:
    run = results.load(build_run())
    assert changing_links_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants})) is None


def test_a_link_without_caps_is_drawn_as_a_whole(run: Run) -> None:
    whole = replace(run, link_changes=changes(run, node_pair_rate_bps=None))
    chart = changing_links_chart(ReportedRuns.of({"": whole}), Styles.of({"": run.variants}))
    assert chart is not None
    assert ">link, " in chart.drawings[0].wide
