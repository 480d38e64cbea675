"""The report says which parts the averages over a star are of."""

import json
from pathlib import Path

from tests.support.results.runs import flat, write_run
from tests.support.results.table_texts import texts_of
from wanbed.results.reading.run import load_run
from wanbed.results.records.run_store import TRIAL_FACTS, read_json
from wanbed.results.report.averages_table import averages_table
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.runner.runs.trial_facts import averages_facts


def test_a_row_has_the_parts_of_the_averages(tmp_path: Path) -> None:
    run = write_run(tmp_path, {("40ms", "gpipe"): flat(1.0)})
    path = next(run.glob("trials/*/*/repeat-0")) / TRIAL_FACTS
    path.write_text(json.dumps({**read_json(path), **averages_facts([(2, 0), (3, 1)], 1)}))
    table = averages_table(ReportedRun(load_run(run)))
    assert table is not None
    assert texts_of(table) == [("WAN latency 40ms", "gpipe", "0", "2", "2 to 3", "1", "1")]
    write_report([run], tmp_path / "report.html")
    assert "Averages over a star" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_without_a_star_there_is_no_table(tmp_path: Path) -> None:
    assert averages_table(ReportedRun(load_run(write_run(tmp_path, {("40ms", "gpipe"): flat(1.0)})))) is None
    assert averages_facts([], 0) == {}
