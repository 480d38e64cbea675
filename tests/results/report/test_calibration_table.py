from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.results.table_texts import by_heading
from wanbed import results
from wanbed.results.records.run_store import RunStore
from wanbed.results.records.schema import CalibrationRow
from wanbed.results.report.calibration_table import MAX_ROWS, calibration_table
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Table

BuildRun = Callable[..., Path]


def table_of(build_run: BuildRun, rows: list[CalibrationRow]) -> Table | None:
    path = build_run(finished_trials=0)
    RunStore.open(path).write_calibration(0, rows)
    return calibration_table(ReportedRun(results.load(path)))


def measured(rtt_ms: float, within: bool = True, **more: Any) -> CalibrationRow:
    row = CalibrationRow("east", "west", "wan", 20.0, rtt_ms, 191e6, 190e6, {}, within)
    return row._replace(**more)


def test_every_path_of_every_sweep_point_is_there(build_run: BuildRun) -> None:
    table = calibration_table(ReportedRun(results.load(build_run())))
    assert table is not None
    assert [(point, len(rows)) for point, rows in table.groups] == [("WAN latency 10ms", 6), ("WAN latency 40ms", 6)]
    assert table.reading[0].startswith("All 12 measurements are within tolerance; at most, RTT is off by 0.100\u00a0ms")


def test_a_run_without_calibration_has_no_table(build_run: BuildRun) -> None:
    assert calibration_table(ReportedRun(results.load(build_run(finished_trials=0)))) is None


def test_links_that_were_measured_at_an_earlier_sweep_point_are_shown_there(build_run: BuildRun) -> None:
    path = build_run(finished_trials=0)
    for point in (0, 1):
        RunStore.open(path).write_calibration(point, 2 * [measured(20.1, calibrated_at_point=0)])
    table = calibration_table(ReportedRun(results.load(path)))
    assert table is not None
    assert [(row["sweep point"], row["path"], row["RTT measured"]) for row in by_heading(table)] == [
        ("WAN latency 10ms", "east to west", "20.1 ms / 20.0 ms"),
        ("WAN latency 10ms", "east to west", "20.1 ms / 20.0 ms"),
        ("WAN latency 40ms", "as measured at WAN latency 10ms", ""),
    ]
    assert table.reading[0].startswith("All 2 measurements are within tolerance")


def test_a_single_measurement_is_the_only_one(build_run: BuildRun) -> None:
    assert (
        table_of(build_run, [measured(20.1)]).reading[0].startswith("The only measurement is within tolerance; at most")
    )


def test_what_is_outside_tolerance_is_counted(build_run: BuildRun) -> None:
    table = table_of(build_run, [measured(20.1), measured(31.0, within=False)])
    assert table is not None
    assert table.reading[0].startswith("1 of 2 measurements are outside tolerance; at most, RTT is off by 11.0\u00a0ms")
    assert [row["within tolerance"] for row in by_heading(table)] == ["yes", "no"]
    assert [row[-1].bad for row in table.rows] == [False, True]


def test_jitter_and_loss_are_shown_where_they_are_asked_for(build_run: BuildRun) -> None:
    plain = table_of(build_run, [measured(20.1)])
    lossy = table_of(build_run, [measured(20.1, impairments={"configured_loss": 0.01, "measured_loss": 0.0098})])
    assert plain is not None
    assert lossy is not None
    assert list(plain.columns[2:-1]) == ["RTT measured", "goodput measured"]
    assert list(lossy.columns[2:-1]) == ["RTT measured", "goodput measured", "loss measured"]
    assert by_heading(lossy)[0]["loss measured"] == "0.980 % / 1.00 %"


def test_transfers_are_shown_where_they_were_measured(build_run: BuildRun) -> None:
    short = {"configured_short_ms": 36.7, "measured_short_ms": 37.1}
    share = {"configured_share_bps": 50e6, "measured_share_bps": 49e6}
    table = table_of(build_run, [measured(20.1, **short), measured(20.1, **short, **share)])
    assert table is not None
    first, second = by_heading(table)
    assert (first["short transfer measured"], first["share of the trunk measured"]) == ("37.1 ms / 36.7 ms", "")
    assert second["share of the trunk measured"] == "49.0 Mbit/s / 50.0 Mbit/s"
    assert "a share of a trunk is off by 2.00\u00a0%" in table.reading[0]


def test_an_unlimited_rate_is_asked_as_such_and_one_not_measured_is_unknown(build_run: BuildRun) -> None:
    table = table_of(build_run, [measured(20.1, configured_goodput_bps=None, measured_goodput_bps=None)])
    assert table is not None
    assert by_heading(table)[0]["goodput measured"] == "n/a / unlimited"
    assert "goodput" not in table.reading[0]


def test_of_very_many_paths_the_worst_are_shown_and_the_rest_counted(build_run: BuildRun) -> None:
    near = [measured(20 + i / 1000) for i in range(MAX_ROWS + 20)]
    table = table_of(build_run, [measured(20.0, within=False), *near])
    assert table is not None
    rows = by_heading(table)
    assert len(rows) == MAX_ROWS
    assert rows[0]["within tolerance"] == "no"
    assert rows[-1]["RTT measured"] == "20.1 ms / 20.0 ms"
    assert f"The {MAX_ROWS} farthest off are shown" in table.reading[0]


def test_a_link_that_changes_has_a_line_for_each_condition_and_blanks_while_it_is_down(build_run: BuildRun) -> None:
    down = {
        "configured_rtt_ms": None,
        "measured_rtt_ms": None,
        "configured_goodput_bps": 0.0,
        "measured_goodput_bps": None,
        "impairments": {"configured_loss": 1.0, "measured_loss": 1.0},
    }
    table = table_of(build_run, [measured(20.1, condition="0ns"), measured(0, condition="8s, down", **down)])
    assert table is not None
    before, after = by_heading(table)
    assert (before["path"], after["path"]) == ("east to west, from 0ns", "east to west, from 8s, down")
    assert (after["RTT measured"], after["goodput measured"], after["loss measured"]) == (
        "n/a",
        "n/a / 0 bit/s",
        "100 % / 100 %",
    )
    assert table.reading[0].startswith("All 2 measurements are within tolerance; at most, RTT is off by 0.100\u00a0ms")
