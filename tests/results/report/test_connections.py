from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.connections import connections_chart
from wanbed.results.report.reported_runs import ReportedRuns

BuildRun = Callable[..., Path]


@pytest.fixture
def run(build_run: BuildRun) -> Run:
    """With two connections in each trial: one across the WAN at 80 ms, one inside a datacenter at 0.1 ms."""
    run = results.load(build_run())
    rows = [
        {
            "sweep_point": trial.point,
            "variant": trial.variant,
            "repeat": trial.repeat,
            "time_ns": step * 10_000_000,
            "source": "east-1",
            "destination": destination,
            "rtt_ns": rtt_ns,
            "cwnd_segments": 10 + step,
        }
        for trial in run.trials
        for step in range(200)
        for destination, rtt_ns in (("central-0", 80_000_000), ("east-0", 100_000))
    ]
    return replace(run, tcp_samples=pd.DataFrame(rows))


def test_round_trips_and_windows_of_connections_across_the_wan_are_drawn(run: Run) -> None:
    chart = connections_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    assert [entry.label for entry in chart.legend] == list(run.variants)
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        assert ">smoothed round-trip time (ms)<" in picture
        assert ">congestion window (segments)<" in picture
        assert ">time since the trial began (s)<" in picture
    assert "80.0\u00a0ms and 110 segments with one connection" in chart.reading


def test_connections_inside_a_datacenter_alone_are_no_chart(run: Run) -> None:
    inside = run.tcp_samples[run.tcp_samples["destination"] == "east-0"]
    assert (
        connections_chart(ReportedRuns.of({"": replace(run, tcp_samples=inside)}), Styles.of({"": run.variants}))
        is None
    )


def test_a_run_without_samples_of_connections_has_no_chart(build_run: BuildRun) -> None:
    run = results.load(build_run())
    assert connections_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants})) is None
