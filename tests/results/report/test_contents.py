"""The tables of a run are on the page, in Markdown and in JSON alike."""

import json
from pathlib import Path

import pytest

from tests.results.report.test_fault_table import FAULTS
from tests.support.results.runs import flat, write_run
from wanbed.results.reading.run import Run, load_run
from wanbed.results.records.run_store import TRIAL_FACTS, read_json
from wanbed.results.report.contents import own_tables
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.text_formats import table_text

FACTS = {
    "faults": FAULTS,
    "averages": {"sums": 4, "fewest_parts": 2, "most_parts": 3, "late_parts": 1, "dropped_parts": 0},
    "planned_makespan_s": 2.0,
}


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two runs, each with three of the tables."""
    written = [write_run(tmp_path / name, {("40ms", "gpipe"): flat(1.0)}) for name in ("a", "b")]
    for run in written:
        facts = min(run.glob(f"trials/*/*/*/{TRIAL_FACTS}"))
        facts.write_text(json.dumps({**read_json(facts), **FACTS}))
    return [load_run(run) for run in written]


def test_every_table_is_in_each_format_and_tells_its_run(runs: list[Run], tmp_path: Path) -> None:
    tables = own_tables(ReportedRun(runs[0]))
    assert [table.name for table in tables] == ["faults", "averages", "plans", "calibration"]
    write_report(runs, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    markdown, document = table_text(runs, "md"), json.loads(table_text(runs, "json"))
    for table in tables:
        assert page.count(f">{table.title}</h") == len(runs)
        assert markdown.count(f"**{table.title}, ") == len(runs)
        assert list(dict.fromkeys(record["run"] for record in document[table.name])) == [
            each["run"] for each in document["runs"]
        ]
    assert document["averages"][0]["late_parts"] == 1
    assert document["faults"][0]["time_to_detect_s"] == 8.25
    assert [record["planned_s"] for record in document["plans"]] == [2.0, 2.0]
