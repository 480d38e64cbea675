"""What was learnt, in the report: chart, table, and the marks of a clock that is another run's."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.results.losses_on_paper import linear, losing_run
from tests.support.results.table_texts import texts_of
from wanbed.results.reading.run import Run, load_run
from wanbed.results.records.schema import HELD_OUT, TRAINING
from wanbed.results.report.charts.chart import PicturePlace
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.losses import MAX_POINTS, loss_chart, loss_series, loss_table
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns
from wanbed.results.report.text_formats import table_text

LEARNS = {"slow": linear(5.0, 0.1), "fast": linear(5.0, 0.2)}
NOTHING = dict.fromkeys(LEARNS)
MARK = "clock simulated"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load_run(losing_run(tmp_path, losses=LEARNS, repeats=3, evaluate_every=2))


@pytest.fixture
def clock(tmp_path: Path) -> Run:
    points = [{"topology.wan.latency": f"{latency}ms"} for latency in range(10, 70, 10)]
    return load_run(losing_run(tmp_path, name="clock", losses=NOTHING, points=points, simulated=True))


def panels(run: Run, clock: Run | None = None, number: int = 0) -> list[str]:
    chart = loss_chart(ReportedRuns.of({"run": run}, [clock]), Styles.of({"run": run.variants}))
    assert chart is not None
    figure = Figure(figsize=(8, 4))
    chart.drawings[number].paint(figure, PicturePlace(narrow=False))
    return [axes.get_xlabel() for axes in figure.axes if axes.get_visible()]


def test_losses_are_drawn_against_steps_tokens_wall_time_and_wan_bytes(run: Run) -> None:
    assert panels(run) == ["steps (iterations)", "tokens", "wall time (s)", "sent over the WAN (MB)"]


def test_the_line_is_the_median_over_seeds_and_the_band_holds_it(run: Run) -> None:
    series = loss_series(ReportedRun(run))[0]
    pooled = series.pooled(HELD_OUT)
    assert pooled is not None
    assert pooled.loss == pytest.approx([5.11 - 0.1 * k for k in (1, 3, 5, 7, 9)])
    assert pooled.x["time_s"] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert pooled.band is not None
    low, high = pooled.band
    assert np.all(low <= pooled.loss)
    assert np.all(pooled.loss <= high)
    assert np.all(low < high)


def test_repeats_of_one_seed_have_no_band(tmp_path: Path) -> None:
    same = load_run(losing_run(tmp_path, losses=LEARNS, repeats=3, seeds=(4, 4, 4)))
    (series, _) = loss_series(ReportedRun(same))
    pooled = series.pooled(TRAINING)
    assert series.seeds == 1
    assert pooled is not None
    assert pooled.band is None
    assert series.final_interval is None


def test_a_run_without_losses_has_no_section(tmp_path: Path) -> None:
    nothing = load_run(losing_run(tmp_path, losses=NOTHING))
    reported = ReportedRuns.of({"run": nothing})
    assert loss_chart(reported, Styles.of({"run": nothing.variants})) is None
    assert loss_table(reported) is None
    write_report([nothing], tmp_path / "report.html")
    assert "<h2>Losses</h2>" not in (tmp_path / "report.html").read_text()
    assert "losses" not in json.loads(table_text([nothing], "json"))
    assert "final_loss" not in table_text([nothing], "csv")


def test_a_joined_clock_is_marked_wherever_its_figures_stand(run: Run, clock: Run, tmp_path: Path) -> None:
    assert panels(run, clock)[2:] == [f"wall time (s), {MARK}", f"sent over the WAN (MB), {MARK}"]
    write_report([run], tmp_path / "joined.html", [clock])
    page = (tmp_path / "joined.html").read_text()
    section = page[page.index("<h2>Losses</h2>") :]
    assert "losses were measured, and their clock is that of another run" in section
    assert f"Losses measured, {MARK} (run {clock.path.name})" in section
    assert f"losses measured, {MARK} (run".upper() in table_text([run], "md", [clock]).upper()
    for record in json.loads(table_text([run], "json", [clock]))["losses"]:
        assert (record["loss_provenance"], record["clock_provenance"]) == ("measured", "simulated")
        assert record["clock_run"] == clock.path.name


def test_without_another_clock_nothing_is_called_simulated(run: Run, tmp_path: Path) -> None:
    write_report([run], tmp_path / "own.html")
    page = (tmp_path / "own.html").read_text()
    assert MARK not in page
    assert "Losses and clock measured." in page
    (record, *_) = json.loads(table_text([run], "json"))["losses"]
    assert (record["clock_provenance"], record["clock_run"]) == ("measured", None)
    assert len(record["loss"]) == len(record["time_s"]) == len(record["tokens"]) == len(record["wan_bytes"]) == 10


def test_of_many_sweep_points_some_are_drawn_and_all_are_in_the_table(run: Run, clock: Run) -> None:
    reported = ReportedRuns.of({"run": run}, [clock])
    chart, table = loss_chart(reported, Styles.of({"run": run.variants})), loss_table(reported)
    assert chart is not None
    assert table is not None
    assert [drawing.name[-4:] for drawing in chart.drawings] == ["10ms", "30ms", "40ms", "60ms"]
    assert len(chart.drawings) == MAX_POINTS
    assert "4 of 6 sweep points are drawn" in chart.reading
    assert len(table.rows) == 2 * 6


def test_a_training_that_diverged_is_called_so(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses={"dp": lambda _r, k, _p: float("nan") if k > 4 else 3.0}))
    table = loss_table(ReportedRuns.of({"run": run}))
    assert table is not None
    assert texts_of(table)[0][1] == "diverged"
    (record,) = json.loads(table_text([run], "json"))["losses"]
    assert record["loss"][5:] == [None] * 5
    write_report([run], tmp_path / "report.html")


def test_the_last_loss_stands_in_the_main_table_for_spreadsheets(run: Run) -> None:
    header, *rows = table_text([run], "csv").splitlines()
    column = header.split(",").index("final_loss")
    assert [float(row.split(",")[column]) for row in rows] == pytest.approx([4.21, 3.31])
