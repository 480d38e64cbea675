"""Tokens of replicas that synchronise seldom are said not to be worth the same where they stand beside others."""

import json
import re
from pathlib import Path

import wanbed
from tests.support.results.runs import flat, write_run
from wanbed.results.comparison.comparison import check, compare
from wanbed.results.comparison.markdown import markdown
from wanbed.results.reading.run import Run, load_run
from wanbed.results.reading.summaries.headline import headline
from wanbed.results.reading.summaries.token_worth import worth_note, worth_text
from wanbed.results.report.charts.drawing.colours import Styles
from wanbed.results.report.charts.iteration_time import iteration_time_chart
from wanbed.results.report.report import write_report
from wanbed.results.report.tables import table_text

NOTE = worth_text(["seldom"])
EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 20ms, rate: 100Mbit}
compute: {forward: 20ms, backward: 40ms, activation: 1MiB, gradient: 1MiB}
training: {microbatches: 4, stages: 1, pipelines: 2}
variants:
  - {name: synchronous, schedule: dp}
  - {name: seldom, schedule: diloco, options: {sync_every: 2}}
"""
TIMES = {("10ms", "synchronous"): flat(2.0), ("10ms", "seldom"): flat(1.0)}


def a_run(path: Path, seldom: tuple[str, ...] = ("seldom",)) -> Run:
    run = write_run(path, TIMES)
    for trial in run.glob("trials/*/*/*/trial.json"):
        facts = json.loads(trial.read_text())
        if facts["variant"] in seldom:
            trial.write_text(json.dumps({**facts, "synchronization": {"sync_every": 1, "fragments": 1, "delay": 0}}))
    return load_run(run)


def test_the_sentence_is_that_of_the_documentation() -> None:
    page = " ".join(Path("docs/local-updates.md").read_text(encoding="utf-8").split())
    assert worth_text(["DiLoCo"]) in page


def test_it_stands_once_in_the_report_s_table_and_once_in_the_chart_s_caption(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(EXPERIMENT)
    run, page = wanbed.simulate(tmp_path / "two.yaml", runs=tmp_path), tmp_path / "report.html"
    write_report([run], page)
    shown = re.sub("<svg.*?</svg>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert shown.count(f">{NOTE}") + shown.count(f" {NOTE}") == 2
    assert table_text([run], "md").count(NOTE) == 1


def test_it_stands_in_the_chart_s_caption(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    chart = iteration_time_chart(headline(run), Styles.of({"": run.variants}), "salt")
    assert chart is not None
    assert chart.reading.count(NOTE) == 1


def test_it_stands_once_in_a_comparison_of_the_two(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    found = compare(check(run, run, names=[("synchronous", "seldom")]))
    assert found.document()["notes"] == [NOTE]
    assert markdown(found).count("is not worth one of data parallelism") == 1


def test_variants_that_are_alike_have_no_such_sentence(tmp_path: Path) -> None:
    synchronous, local = a_run(tmp_path / "a", ()), a_run(tmp_path / "b", ("synchronous", "seldom"))
    assert worth_note(headline(synchronous)) == worth_note(headline(local)) == ""
    assert compare(check(local, local, names=[("synchronous", "seldom")])).notes == ()
