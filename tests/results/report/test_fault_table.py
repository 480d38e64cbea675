"""The report has a row for each trial in which something was to fail, and warns of trials that ended early."""

import json
from pathlib import Path
from typing import Any

from tests.support.results.runs import flat, write_run
from tests.support.results.table_texts import texts_of
from wanbed.results.comparison.caveats import caveats
from wanbed.results.comparison.pairing import pair_runs
from wanbed.results.reading.run import Run, load_run
from wanbed.results.records.run_store import TRIAL_FACTS, read_json
from wanbed.results.report.fault_table import fault_table, fault_warnings
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRun

FAULTS: dict[str, Any] = {
    "outcome": "failed",
    "planned": True,
    "reason": "host east-0 failed",
    "iterations_completed": 2,
    "iterations_lost": 0,
    "training_goodput": 0.25,
    "injected": [{"fault": "host east-0", "ranks": [0]}, {"fault": "rank 9", "ranks": []}],
    "disturbances": [{"faults": ["host east-0"], "time_to_detect_ns": 8_250_000_000, "time_to_recover_ns": None}],
}


def faulted(path: Path, **changes: Any) -> Run:
    run = write_run(path, {("40ms", "gpipe"): flat(1.0, repeats=3)})
    first = next(run.glob("trials/*/*/repeat-0")) / TRIAL_FACTS
    first.write_text(json.dumps({**read_json(first), "faults": {**FAULTS, **changes}}))
    return load_run(run)


def test_a_row_says_what_failed_and_what_it_cost(tmp_path: Path) -> None:
    table = fault_table(ReportedRun(faulted(tmp_path)))
    assert table is not None
    (row,) = texts_of(table)
    assert row[1:6] == ("gpipe", "0", "failed after 2", "host east-0", "8.25\N{NO-BREAK SPACE}s")
    assert row[-1] == "25.0\N{NO-BREAK SPACE}%"


def test_a_run_without_failures_has_no_table(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, {("40ms", "gpipe"): flat(1.0)}))
    assert fault_table(ReportedRun(run)) is None
    assert fault_warnings(ReportedRun(run)) == []
    assert run.summary["outcome"].isna().all()


def test_the_page_shows_the_table_and_the_warning(tmp_path: Path) -> None:
    run = faulted(tmp_path / "run", planned=False)
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "host east-0" in page
    assert "1 trial ended before the last iteration" in page
    assert "1 trial failed without a planned fault" in page


def test_the_summary_has_the_figures(tmp_path: Path) -> None:
    row = faulted(tmp_path).summary.iloc[0]
    assert (row["outcome"], row["training_goodput"], row["time_to_detect_s"]) == ("failed", 0.25, 8.25)


def test_a_comparison_says_how_many_repeats_had_failures(tmp_path: Path) -> None:
    a, b = faulted(tmp_path / "a"), load_run(write_run(tmp_path / "b", {("40ms", "gpipe"): flat(1.0)}))
    found = [line for line in caveats(a, b, pair_runs(a, b).pairs) if "failures" in line]
    assert len(found) == 1
    assert "(1 repeat in A, 1 failed, training goodput 25.0\N{NO-BREAK SPACE}%)" in found[0]
