import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles, lightened
from wanbed.results.report.charts.link_throughput import BINS, MAX_LINKS, PEAK_BIN_NS, link_rates, link_throughput_chart
from wanbed.results.report.reported_runs import ReportedRuns

BuildRun = Callable[..., Path]


@pytest.fixture
def run(build_run: BuildRun) -> Run:
    return results.load(build_run())


def chart_of(**runs: Run) -> Chart:
    styles = Styles.of({label: run.variants for label, run in runs.items()})
    found = link_throughput_chart(ReportedRuns.of(runs), styles)
    assert found is not None
    return found


@pytest.mark.parametrize(("repeats", "bands"), [(1, False), (2, False), (3, True)])
def test_a_band_takes_three_repeats(build_run: BuildRun, repeats: int, bands: bool) -> None:
    chart = chart_of(only=results.load(build_run(repeats=repeats, latencies=("40ms",))))
    assert ("Bands are 95 % intervals of the median over repeats." in chart.reading) == bands
    assert (f"Of up to {repeats} repeats the one with the typical iteration time" in chart.reading) == (repeats > 1)
    with patch("wanbed.results.report.charts.link_throughput._band") as drawn:
        assert chart.drawings[0].wide
    # A band in each of four panels, in a lane for each of two variants.
    assert drawn.call_count == (8 if bands else 0)


def test_every_link_that_carried_anything_has_a_panel_with_units(run: Run) -> None:
    chart = chart_of(only=run)
    assert chart.title == "Link throughput over time, at WAN latency 40ms"
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        for link in ("east to central", "central to east", "central to west", "west to central"):
            assert picture.count(f">{link}<") == 1
        assert ">east to west<" not in picture
        assert ">Mbit/s<" in picture
        assert ">time since the trial began (s)<" in picture


def test_variants_have_their_colour_and_the_node_pair_s_rate_its_line(run: Run) -> None:
    chart = chart_of(only=run)
    labels = [entry.label for entry in chart.legend]
    assert labels == ["one connection", "many connections", "configured rate of one node pair"]
    for style in Styles.of({"": run.variants}).variants.values():
        assert style.colour.lower() in chart.drawings[0].wide.lower()


def test_the_reading_gives_the_highest_rates_of_the_busiest_link(run: Run) -> None:
    chart = chart_of(only=run)
    assert "with one connection and " in chart.reading
    assert "headers included, as means over " in chart.reading
    assert "Configured rates far above what is drawn: 1.00\u00a0Gbit/s of the link." in chart.reading


def test_several_runs_share_the_panels(run: Run) -> None:
    chart = chart_of(old=run, new=run)
    assert [entry.label for entry in chart.legend][2:4] == ["old", "new"]
    assert ", in the order of the runs," in chart.reading


def test_several_runs_have_an_area_and_lines_in_the_legend_and_no_line_of_a_configured_rate(run: Run) -> None:
    chart = chart_of(old=run, new=run)
    area, line, configured = chart.legend[2:]
    for entry in chart.legend[:2]:
        picture = chart.drawings[0].wide.lower()
        assert f"fill: {lightened(entry.style.colour).lower()}" in picture, "else a line that coincides is not seen"
        assert f"stroke: {entry.style.colour.lower()}" in picture
    assert (area.style.line, area.style.marker, line.style.line) == ("", "", "--")
    assert configured.label == "configured rate of one node pair"
    assert configured.style.line not in {"", "--"}


def test_counters_that_are_read_late_make_no_link_faster_than_it_is(run: Run) -> None:
    """A link is full for the whole trial; each sample says when it was asked for, and holds what was sent by then
    and up to 5 ms more."""
    random = np.random.default_rng(0)
    sampled_ns = np.cumsum(random.integers(8_000_000, 100_000_000, 400))
    read_ns = sampled_ns + random.integers(0, 5_000_000, len(sampled_ns))
    jittered = pd.DataFrame(
        {
            "scope": "link", "source": "east", "destination": "west",
            "time_ns": sampled_ns, "wire_bytes": read_ns // 80,
        }
    )  # fmt: skip
    (fine,) = link_rates(jittered, int(sampled_ns[-1]), BINS).values()
    (coarse,) = link_rates(jittered, int(sampled_ns[-1]), BINS, PEAK_BIN_NS).values()
    assert np.diff(coarse.edges_ns).min() >= PEAK_BIN_NS
    assert fine.rates_bps.max() > 103e6
    assert coarse.rates_bps.max() < 102.1e6


def test_an_emulation_is_drawn_in_bins_that_late_readings_do_not_distort(run: Run) -> None:
    chart = chart_of(only=run)
    (text,) = re.findall(r"as means over ([0-9.]+).ms", chart.reading)
    assert float(text) >= PEAK_BIN_NS / 1e6


def test_a_manifest_without_rates_still_gives_a_chart(run: Run) -> None:
    points = [{key: value for key, value in point.items() if key != "wan"} for point in run.manifest["sweep_points"]]
    chart = chart_of(only=replace(run, manifest={**run.manifest, "sweep_points": points}))
    assert [entry.label for entry in chart.legend] == ["one connection", "many connections"]
    assert "Configured" not in chart.reading


def test_of_very_many_links_those_that_carried_most_are_drawn(build_run: BuildRun) -> None:
    run = results.load(build_run(datacenters=[f"dc{number}" for number in range(6)], latencies=("10ms",)))
    chart = chart_of(only=run)
    assert f"Only the {MAX_LINKS} of 10 directed links that carried most are drawn." in chart.reading


def test_a_run_without_link_samples_has_no_chart(run: Run) -> None:
    silent = replace(run, link_samples=run.link_samples[:0])
    assert link_throughput_chart(ReportedRuns.of({"": silent}), Styles.of({"": run.variants})) is None
