"""Changing links in an experiment file: paths, sweeps, hashes, and documents that need no file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.refused import refused
from wanbed.results.comparison.differences import flattened
from wanbed.runner.planner.experiment_file import load_experiment, parse_experiment
from wanbed.runner.resolve.experiment import Experiment

TRACE = "t_s,rate\n0,100Mbit\n5,50Mbit\n"


def written(folder: Path, wan: dict[str, Any], **further: Any) -> Path:
    topology = {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "10ms", "rate": "100Mbit", **wan},
    }
    document = {
        "topology": topology,
        "compute": {"forward": "20ms", "activation": "1MiB"},
        "engine": "simulate",
        **further,
    }
    path = folder / "exp.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def last_rate_bps(experiment: Experiment, point: int = 0) -> int | None:
    course = experiment.points()[point].topology.course("east", "west")
    return None if course is None else course.changes[-1].conditions.rate_bps


def test_a_document_has_the_traces_text_and_needs_no_file(tmp_path: Path) -> None:
    (tmp_path / "drift.csv").write_text(TRACE, encoding="utf-8")
    experiment = load_experiment(written(tmp_path, {"trace": "drift.csv"}))
    assert experiment.document()["traces"] == {"drift.csv": TRACE}
    again = parse_experiment(experiment.document(), "manifest", tmp_path / "elsewhere")
    assert again.config_hash == experiment.config_hash
    assert last_rate_bps(again) == last_rate_bps(experiment) == 50_000_000


def test_the_hash_follows_the_content_of_a_trace(tmp_path: Path) -> None:
    path = written(tmp_path, {"trace": "drift.csv"})
    hashes = set()
    for text in (TRACE, TRACE.replace("50Mbit", "51Mbit")):
        (tmp_path / "drift.csv").write_text(text, encoding="utf-8")
        hashes.add(load_experiment(path).config_hash)
    assert len(hashes) == 2


def test_a_file_without_changes_has_no_key_of_them(tmp_path: Path) -> None:
    document = load_experiment(written(tmp_path, {})).document()
    assert "traces" not in document
    assert set(document["topology"]["wan"]) == {"latency", "rate", "node_pair_rate", "jitter", "loss"}


def test_traces_are_set_and_swept_by_their_path(tmp_path: Path) -> None:
    for name, rate in (("calm.csv", "90Mbit"), ("storm.csv", "10Mbit")):
        (tmp_path / name).write_text(f"t_s,rate\n5,{rate}\n", encoding="utf-8")
    swept = load_experiment(written(tmp_path, {}, sweep={"topology.wan.trace": ["calm.csv", "storm.csv"]}))
    assert [last_rate_bps(swept, point) for point in (0, 1)] == [90_000_000, 10_000_000]
    again = parse_experiment(swept.document(), "manifest", tmp_path / "elsewhere")
    assert again.config_hash == swept.config_hash
    path = written(tmp_path, {})
    assert last_rate_bps(load_experiment(path, ["topology.wan.trace=storm.csv"])) == 10_000_000
    down = load_experiment(path, ["topology.wan.events=[{at: 3s, for: 1s, down: true}]"])
    assert down.points()[0].topology.changes


def test_a_bad_trace_is_one_line_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "drift.csv").write_text("t_s,rate\n0,1Gbit\n1,1000\n", encoding="utf-8")
    line = refused(lambda: load_experiment(written(tmp_path, {"trace": "drift.csv"})))
    assert line.startswith(f"{tmp_path}/drift.csv:3: rate: '1000' is not a rate")


@pytest.mark.parametrize(
    ("wan", "text"),
    [
        ({"events": [{"at": "3s"}]}, "topology.wan.events.0: it changes nothing"),
        ({"events": [{"at": "3s", "for": "0s", "down": True}]}, "topology.wan.events.0.for: 0s is no time"),
        ({"events": [{"at": "3s", "down": True}]}, "is down for good from 3s on, and nothing can be trained"),
        ({"events": [{"at": "0s", "for": "1s", "down": True}]}, "is down when training begins"),
        ({"events": [{"at": 3, "down": True}]}, "topology.wan.events.0.at: 3 has no unit"),
        ({"trace": 3}, "topology.wan.trace: 3 is no trace"),
        ({"trace": {"mahimahi": "a", "csv": "b"}}, "topology.wan.trace: give either"),
        ({"generate": {"length": "60s"}}, "topology.wan.generate: nothing is drawn"),
        ({"loop": "0s"}, "topology.wan.loop: '0s' is no period"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field(wan: dict[str, Any], text: str, tmp_path: Path) -> None:
    assert text in refused(lambda: load_experiment(written(tmp_path, wan)))


def test_a_long_course_and_a_long_trace_are_one_line_each_in_a_comparison(tmp_path: Path) -> None:
    rows = "".join(f"{second},{50 + second % 50}Mbit\n" for second in range(50_000))
    (tmp_path / "drift.csv").write_text(f"t_s,rate\n{rows}", encoding="utf-8")
    experiment = load_experiment(written(tmp_path, {"trace": "drift.csv"}))
    fields = dict(flattened({"experiment": experiment.document(), "wan": experiment.points()[0].resolved()["wan"]}))
    assert len(fields) < 200
    assert fields["experiment.traces.drift.csv"].startswith("50001 lines, SHA-256 ")
    assert fields["wan.0.course"].startswith("drift.csv (49999 changes, SHA-256 ")
