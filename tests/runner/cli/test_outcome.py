"""What a run shows on a terminal when its trials are over."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
import yaml
from rich.console import Console

from tests.support.results.runs import write_run
from tests.support.runner.called_wanbed import simulate_here
from wanbed.results.reading.known_misses import KnownMiss
from wanbed.results.reading.prefill import FirstTokenTimes, PrefillGpus, PrefillRow
from wanbed.runner.cli.exit_status import one_line_errors
from wanbed.runner.cli.outcome import prefill_table, prefill_warnings, show_outcome
from wanbed.runner.cli.terminal import print_table
from wanbed.runner.runs.faults import NO_DATA

FAULT = "this is a fault of wanbed itself: please report the lines above."


def row_of(path: Path, load: dict[str, Any], capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    run = write_run(path, {("10ms", "stock"): [[1.0, 1.0]]}, **options)
    (trial,) = run.glob("trials/*/*/*/trial.json")
    trial.write_text(json.dumps({**json.loads(trial.read_text()), "machine_load": load}))
    show_outcome(run, as_json=False)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "stock" in line)
    return row.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"saturated": 1.0, "network": None}, "yes, SATURATED: all cores 100 %"),
        ({"saturated": 0.0, "network": 0.9}, "yes, SATURATED: network core 90.0 %"),
        ({"saturated": 0.0, "network": 0.1}, " yes "),
    ],
)
def test_a_saturated_trial_does_not_read_as_if_all_were_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], load: dict[str, Any], words: str
) -> None:
    row = row_of(tmp_path, load, capsys)
    assert words in row
    assert ("SATURATED" in row) == ("SATURATED" in words)


def test_links_outside_tolerance_on_a_saturated_machine_are_both_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "NO, SATURATED: all cores 50.0 %" in row_of(tmp_path, {"saturated": 0.5}, capsys, within_tolerance=False)


def test_a_swept_path_with_brackets_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path, {("[/red] 10ms", "stock"): [[1.0, 1.0]]}, latency_ns=lambda _: 10**7)
    show_outcome(run, as_json=False)
    assert "latency [/red]" in capsys.readouterr().out


def last_line(
    path: Path, capsys: pytest.CaptureFixture[str], load: dict[str, Any] | None = None, **options: Any
) -> str:
    run = write_run(path, {("10ms", "stock"): [[1.0, 1.0]], ("40ms", "stock"): [[1.0]]}, **options)
    for trial in run.glob("trials/point-000/*/*/trial.json"):
        trial.write_text(json.dumps({**json.loads(trial.read_text()), "machine_load": load or {}}))
    show_outcome(run, as_json=False)
    return "".join(capsys.readouterr().err.splitlines()[-1:]).replace(str(run), "RUN").replace("\u00a0", " ")


def test_a_report_that_fails_says_so_and_where_the_run_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise IndexError("index 0 is out of bounds")

    run = write_run(tmp_path, {("10ms", "stock"): [[1.0, 1.0]]})
    monkeypatch.setattr("wanbed.runner.cli.outcome.write_report", fails)
    with pytest.raises(typer.Exit) as ended, one_line_errors():
        show_outcome(run, as_json=False)
    *traceback, line = capsys.readouterr().err.splitlines()
    assert line == f"wanbed: {FAULT} The report failed, what was run is in {run}"
    assert traceback[-1] == "IndexError: index 0 is out of bounds"
    assert ended.value.exit_code == NO_DATA


def test_a_single_iteration_says_why_it_has_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = {
        "topology": {"datacenters": [{"name": "east", "hosts": 1}]},
        "compute": {"forward": "10ms", "activation": "1B"},
        "training": {"stages": 1, "microbatches": 3, "iterations": 1, "warmup": 0},
        "variants": [{"name": "alone", "schedule": "gpipe"}],
    }
    show_outcome(simulate_here(yaml.safe_dump(experiment), tmp_path).path, as_json=False)
    printed = capsys.readouterr().out
    (row,) = (line for line in printed.splitlines() if "alone" in line)
    assert ("unknown" in row, "0.090" in row) == (True, True)
    assert "training.iterations: 2 or more" in printed


def test_a_good_run_ends_with_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert last_line(tmp_path, capsys) == ""


def test_the_last_line_says_which_links_were_outside_tolerance_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert last_line(tmp_path, capsys, within_tolerance=False) == (
        "wanbed: 2 of 2 links outside tolerance at 2 of 2 sweep points (east to west): do not compare these figures; "
        "run again on a machine that does nothing else, with lower rates, or with --clock virtual; "
        "report: RUN/report.html"
    )


def test_the_last_line_says_in_which_trials_the_machine_was_saturated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = last_line(tmp_path, capsys, {"saturated": 0.5})
    assert line.startswith("wanbed: the machine was saturated in 1 of 2 trials (stock): do not compare")


@pytest.mark.parametrize("written", [{"compute": {"kind": "torch"}}, {"dilation": 4}])
def test_no_clock_is_advised_that_the_file_does_not_go_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: dict[str, Any]
) -> None:
    line = last_line(tmp_path, capsys, {"saturated": 0.5}, experiment=written)
    assert "run again on a machine that does nothing else, or with lower rates; report: " in line


@pytest.mark.parametrize(
    ("load", "within_tolerance", "comparable"), [(0.0, True, True), (0.5, True, False), (0.0, False, False)]
)
def test_figures_that_are_not_to_be_compared_are_no_good_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], load: float, within_tolerance: bool, comparable: bool
) -> None:
    run = write_run(tmp_path, {("10ms", "stock"): [[1.0, 1.0]]}, within_tolerance=within_tolerance)
    (trial,) = run.glob("trials/*/*/*/trial.json")
    trial.write_text(json.dumps({**json.loads(trial.read_text()), "machine_load": {"saturated": load}}))
    assert show_outcome(run, as_json=False) == comparable
    assert ("do not compare these figures" in capsys.readouterr().err) != comparable


def test_in_virtual_time_the_machine_is_not_blamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = last_line(tmp_path, capsys, within_tolerance=False, clock="virtual")
    assert "compare the links in the report with the file" in line
    assert "does nothing else" not in line


def test_json_and_the_summary_file_have_the_load_of_each_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, {("10ms", "stock"): [[1.0]]})
    (trial,) = run.glob("trials/*/*/*/trial.json")
    trial.write_text(json.dumps({**json.loads(trial.read_text()), "machine_load": {"saturated": 1.0}}))
    show_outcome(run, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)["summary"]
    lines = {name: row[name] for name in ("saturated", "cores_saturated_fraction", "network_core_busy_fraction")}
    assert lines == {"saturated": True, "cores_saturated_fraction": 1.0, "network_core_busy_fraction": None}
    assert pd.read_parquet(run / "summary.parquet")["saturated"].tolist() == [True]


def test_a_simulation_that_is_known_to_be_off_ends_with_how_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    miss = KnownMiss("full-trunk", "node pairs together fill a trunk", -0.17, 0.07, 55)
    run = write_run(tmp_path, {("10ms", "stock"): [[1.0]], ("40ms", "stock"): [[1.0]]}, engine="simulate")
    trial = next(iter(sorted(run.glob("trials/*/*/*/trial.json"))))
    trial.write_text(json.dumps({**json.loads(trial.read_text()), "known_misses": [miss.document()]}))
    show_outcome(run, as_json=False)
    last = capsys.readouterr().err.splitlines()[-1].replace(str(run), "RUN").replace("\u00a0", " ")
    assert last == (
        "wanbed: 1 of 2 trials are of kinds whose simulation is known to be off from virtual time: full-trunk: "
        "node pairs together fill a trunk (iteration times simulated 17 % too fast to 7 % too slow, over 55 trials); "
        "run with --clock virtual where that matters; report: RUN/report.html"
    )


def test_a_simulation_without_a_mark_ends_with_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert last_line(tmp_path, capsys, engine="simulate") == ""


COUNTS = {"offered": 200, "admitted": 90, "off_loaded": 10, "unfinished": 5}


NO_TIMES = np.array([], np.int64)


def row(**changes: Any) -> PrefillRow:
    ttft_ns = np.array([1_000_000_000, 2_000_000_000, 3_000_000_000])
    whole = PrefillRow(
        run="",
        point=0,
        values={"prefill.rate": "4/s"},
        variant="planned",
        policy="planned",
        repeats=1,
        window_s=50.0,
        counts=COUNTS,
        ttft=FirstTokenTimes(ttft_ns, ttft_ns, (ttft_ns,)),
        slo_s=10.0,
        overruns=None,
        gpus=PrefillGpus(4, 1, None, 1.0),
    )
    return replace(whole, **changes)


def shown(*rows: PrefillRow) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        print_table(prefill_table(rows), console)
    return captured.get().replace("\u00a0", " ")


def test_the_line_has_ttft_and_the_shares_admitted_and_unfinished() -> None:
    (line,) = (line for line in shown(row()).splitlines() if "planned" in line)
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["request rate 4/s", "planned", "2.00 s", "3.00 s", "200", "100 (50.0 %)", "5 (5.00 %)"]


def test_without_requests_there_are_no_shares_and_a_warning_says_that_none_arrived() -> None:
    none = row(counts=dict.fromkeys(COUNTS, 0), ttft=FirstTokenTimes(NO_TIMES, NO_TIMES, ()))
    assert "0 (n/a)" in shown(none)
    (warning,) = prefill_warnings([row(), none])
    assert warning.startswith("prefill: no request arrived in the 50 s after training's warm-up (request rate 4/s, p")


def test_more_than_one_in_twenty_unfinished_is_a_warning_that_names_where() -> None:
    many = row(counts={**COUNTS, "unfinished": 6}, variant="greedy")
    assert not list(prefill_warnings([row()]))
    (warning,) = prefill_warnings([row(), many])
    assert "(request rate 4/s, greedy)" in warning
    assert "planned" not in warning
