"""A trial of which one part was simulated for all: its figures from one part's spans are those from all of them."""

import json
from pathlib import Path
from typing import Any

import pytest

import wanbed
from wanbed.results.reading.run import load_run
from wanbed.results.reading.summary import summary_rows
from wanbed.results.report.charts.gpu_time import gpu_time_shares
from wanbed.results.report.plan_outcome import plan_outcomes
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRuns, labelled

DOCUMENT: dict[str, Any] = {
    "engine": "simulate",
    "topology": {
        "datacenters": [{"name": name, "hosts": 8} for name in ("east", "west")],
        "wan": {"latency": "20ms", "node_pair_rate": "1Gbit"},
    },
    "compute": {"forward": "10ms", "backward": "20ms", "activation": "4MiB", "gradient": "16MiB"},
    "training": {"stages": 2, "pipelines": 8, "microbatches": 6, "iterations": 4, "warmup": 1},
    "variants": [
        {
            "name": "atlas",
            "schedule": "atlas",
            "transport": {"connections": 2, "sharing": "temporal", "pipelines_per_cell": 2, "model": "mean"},
        }
    ],
}


@pytest.fixture(name="folder")
def folder_of_a_run(tmp_path: Path) -> Path:
    """Returns a run whose plan promised half of the time, so that the causes are looked for."""
    experiment = tmp_path / "parts.yaml"
    experiment.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    folder = wanbed.simulate(experiment, runs=tmp_path / "runs").path
    facts = read_facts(folder)
    plan = {name: [each / 2 for each in facts["plan"][name]] for name in ("computing_s", "transfer_s")}
    write_facts(folder, {**facts, "planned_makespan_s": facts["planned_makespan_s"] / 2, "plan": plan})
    return folder


def facts_file(folder: Path) -> Path:
    (file,) = folder.glob("trials/*/*/*/trial.json")
    return file


def read_facts(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(facts_file(folder).read_text(encoding="utf-8"))
    return facts


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    facts_file(folder).write_text(json.dumps(facts), encoding="utf-8")


def test_a_report_is_the_same_from_one_part_and_from_all(folder: Path) -> None:
    facts = read_facts(folder)
    assert facts["equal_parts"] == 4
    pages, figures = [], []
    for own in (facts, {name: fact for name, fact in facts.items() if name != "equal_parts"}):
        write_facts(folder, own)
        run = load_run(folder, coded=True)
        (rows,) = run.rows.values()
        (reported,) = ReportedRuns.of(labelled([run])).runs
        (outcome,) = plan_outcomes(reported)
        assert "contention" in "".join(outcome.causes)
        figures.append((summary_rows(run.summary), gpu_time_shares(run), outcome))
        assert len(rows.spans_of_part) == len(rows.spans) // own.get("equal_parts", 1)
        write_report([run], folder / "report.html")
        pages.append((folder / "report.html").read_text(encoding="utf-8"))
    assert figures[0] == figures[1]
    assert pages[0] == pages[1]


def test_a_trial_without_equal_parts_says_nothing_of_them(tmp_path: Path) -> None:
    unlike = {**DOCUMENT, "training": {**DOCUMENT["training"], "pipelines": 2}}
    experiment = tmp_path / "one.yaml"
    experiment.write_text(json.dumps(unlike), encoding="utf-8")
    assert "equal_parts" not in read_facts(wanbed.simulate(experiment, runs=tmp_path / "runs").path)
