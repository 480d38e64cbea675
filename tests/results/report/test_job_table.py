import json
from pathlib import Path

import pytest

from tests.support.runner.two_jobs import two_jobs
from wanbed.results.reading.headline import headline
from wanbed.results.reading.run import Run, load_run
from wanbed.results.report.job_table import job_rows
from wanbed.results.report.report import write_report
from wanbed.results.report.text_formats import table_text
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    experiment = parse_experiment({"engine": "simulate", **two_jobs(rate="200Mbit")}, "file", Path())
    runs = tmp_path_factory.mktemp("runs")
    path = simulated_run(experiment, runs, resume=False, pool=ProcessPool(1), log=lambda _: None)
    return load_run(path)


def test_each_variant_beside_others_has_a_row_with_its_slow_down(run: Run) -> None:
    rows = job_rows(run, headline(run))
    ours, theirs = rows
    assert [(row.job, row.variant, row.others) for row in rows] == [
        ("a", "ours", ("theirs",)),
        ("b", "theirs", ("ours",)),
    ]
    assert ours.alone_s is not None
    assert ours.beside_s is not None
    assert ours.slow_down == pytest.approx(ours.beside_s / ours.alone_s)
    assert ours.slow_down > 1.1
    assert ours.jain == theirs.jain
    assert 0.5 < (ours.jain or 0) <= 1


def test_iterations_after_the_first_job_has_ended_do_not_count(run: Run) -> None:
    counted = {row["variant"]: len(row["iteration_times_s"]) for row in run.summary.to_dict("records")}
    assert counted["ours"] == counted["theirs"] == 3
    assert sorted((counted["ours beside theirs"], counted["theirs beside ours"])) == [2, 3]


def test_page_markdown_and_json_have_the_table(run: Run, tmp_path: Path) -> None:
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Jobs that share the WAN" in page
    assert "| a | ours | theirs |" in table_text([run], "md").replace("|  |", "|")
    document = json.loads(table_text([run], "json"))
    assert [row["job"] for row in document["jobs"]] == ["a", "b"]
