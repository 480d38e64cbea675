from collections.abc import Callable
from pathlib import Path
from typing import Any

from wanbed import results
from wanbed.results.records.run_store import RunStore
from wanbed.results.records.schema import CalibrationRow
from wanbed.results.report.calibration_table import MAX_ROWS, CalibrationTable, calibration_table

BuildRun = Callable[..., Path]


def table_of(build_run: BuildRun, rows: list[CalibrationRow]) -> CalibrationTable | None:
    path = build_run(finished_trials=0)
    RunStore.open(path).write_calibration(0, rows)
    return calibration_table(results.load(path))


def measured(rtt_ms: float, within: bool = True, **more: Any) -> CalibrationRow:
    row = CalibrationRow("east", "west", "wan", 20.0, rtt_ms, 191e6, 190e6, {}, within)
    return row._replace(**more)


def test_every_path_of_every_sweep_point_is_there(build_run: BuildRun) -> None:
    table = calibration_table(results.load(build_run()))
    assert table is not None
    assert [point for point, _ in table.groups] == ["WAN latency 10ms", "WAN latency 40ms"]
    assert [len(lines) for _, lines in table.groups] == [6, 6]
    assert table.reading.startswith("All 12 measurements are within tolerance; at most, RTT is off by 0.100\u00a0ms")


def test_a_run_without_calibration_has_no_table(build_run: BuildRun) -> None:
    assert calibration_table(results.load(build_run(finished_trials=0))) is None


def test_links_that_were_measured_at_an_earlier_sweep_point_are_shown_there(build_run: BuildRun) -> None:
    path = build_run(finished_trials=0)
    for point in (0, 1):
        RunStore.open(path).write_calibration(point, 2 * [measured(20.1, calibrated_at_point=0)])
    table = calibration_table(results.load(path))
    assert table is not None
    assert [(heading, len(lines)) for heading, lines in table.groups] == [
        ("WAN latency 10ms", 2),
        ("WAN latency 40ms: measured at WAN latency 10ms", 0),
    ]
    assert table.reading.startswith("All 2 measurements are within tolerance")


def test_a_single_measurement_is_the_only_one(build_run: BuildRun) -> None:
    assert table_of(build_run, [measured(20.1)]).reading.startswith("The only measurement is within tolerance; at most")


def test_what_is_outside_tolerance_is_counted(build_run: BuildRun) -> None:
    table = table_of(build_run, [measured(20.1), measured(31.0, within=False)])
    assert table is not None
    assert table.reading.startswith("1 of 2 measurements are outside tolerance; at most, RTT is off by 11.0\u00a0ms")
    assert [line.within_tolerance for line in table.groups[0][1]] == [True, False]


def test_jitter_and_loss_are_shown_where_they_are_asked_for(build_run: BuildRun) -> None:
    plain = table_of(build_run, [measured(20.1)])
    lossy = table_of(build_run, [measured(20.1, impairments={"configured_loss": 0.01, "measured_loss": 0.0098})])
    assert plain is not None
    assert lossy is not None
    assert plain.columns == ("RTT", "goodput")
    assert lossy.columns == ("RTT", "goodput", "loss")
    assert lossy.groups[0][1][0].properties[2].configured == "1.00\u00a0%"
    assert lossy.groups[0][1][0].properties[2].measured == "0.980\u00a0%"


def test_transfers_are_shown_where_they_were_measured(build_run: BuildRun) -> None:
    short = {"configured_short_ms": 36.7, "measured_short_ms": 37.1}
    share = {"configured_share_bps": 50e6, "measured_share_bps": 49e6}
    table = table_of(build_run, [measured(20.1, **short), measured(20.1, **short, **share)])
    assert table is not None
    assert table.columns == ("RTT", "goodput", "short transfer", "share of the trunk")
    first, second = table.groups[0][1]
    assert first.properties[2].measured == "37.1\u00a0ms"
    assert (first.properties[3].configured, first.properties[3].measured) == ("", "")
    assert second.properties[3].configured == "50.0\u00a0Mbit/s"
    assert "a share of a trunk is off by 2.00\u00a0%" in table.reading


def test_an_unlimited_rate_is_asked_as_such_and_one_not_measured_is_unknown(build_run: BuildRun) -> None:
    table = table_of(build_run, [measured(20.1, configured_goodput_bps=None, measured_goodput_bps=None)])
    assert table is not None
    goodput = table.groups[0][1][0].properties[1]
    assert (goodput.configured, goodput.measured) == ("unlimited", "n/a")
    assert "goodput" not in table.reading


def test_of_very_many_paths_the_worst_are_shown_and_the_rest_counted(build_run: BuildRun) -> None:
    rows = [measured(20 + i / 1000) for i in range(MAX_ROWS + 20)]
    table = table_of(build_run, [measured(20.0, within=False), *rows])
    assert table is not None
    lines = table.groups[0][1]
    assert len(lines) == MAX_ROWS
    assert not lines[0].within_tolerance
    assert lines[-1].properties[0].measured == "20.1\u00a0ms"
    assert f"The {MAX_ROWS} farthest off are shown" in table.reading


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
    assert [line.path for line in table.groups[0][1]] == ["east to west, from 0ns", "east to west, from 8s, down"]
    rtt, goodput, loss = table.groups[0][1][1].properties
    assert (rtt.configured, rtt.measured, goodput.measured) == ("", "n/a", "n/a")
    assert (goodput.configured, loss.configured, loss.measured) == ("0\u00a0bit/s", "100\u00a0%", "100\u00a0%")
    assert table.reading.startswith("All 2 measurements are within tolerance; at most, RTT is off by 0.100\u00a0ms")
