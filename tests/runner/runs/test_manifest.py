import json
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.manifest import gather_manifest, without_repetition


def experiment(**changes: Any) -> Experiment:
    return parse_experiment(
        {
            "name": "quick",
            "topology": {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {}},
            "training": {"microbatches": 4, "warmup": 1},
            "variants": [{"name": "one", "schedule": "gpipe"}, {"name": "many", "schedule": "1f1b"}],
            **changes,
        },
        "exp.yaml",
        Path(),
    )


def test_a_manifest_is_plain_json_and_reads_back_as_the_experiment(tmp_path: Path) -> None:
    asked = experiment(sweep={"topology.wan.latency": ["10ms", "40ms"]})
    manifest = gather_manifest(asked, checkout=tmp_path)
    assert json.loads(json.dumps(manifest, allow_nan=False)) == manifest
    again = parse_experiment(manifest["experiment"], "manifest.json", tmp_path)
    assert again.config_hash == manifest["config_hash"] == asked.config_hash


def test_a_simulation_names_no_clock(tmp_path: Path) -> None:
    manifest = gather_manifest(experiment(engine="simulate"), checkout=tmp_path)
    assert (manifest["engine"], manifest["clock"]) == ("simulate", None)


def test_a_manifest_says_what_is_run(tmp_path: Path) -> None:
    asked = experiment(sweep={"topology.wan.latency": ["10ms", "40ms"]}, seed=7)
    manifest = gather_manifest(asked, checkout=tmp_path)
    assert (manifest["name"], manifest["seed"], manifest["engine"], manifest["clock"]) == (
        "quick",
        7,
        "emulate",
        "real",
    )
    assert [(entry["name"], entry["schedule"]) for entry in manifest["variants"]] == [
        ("one", "gpipe"),
        ("many", "1f1b"),
    ]
    assert manifest["variants"][0]["transport"]["connections"] == 1
    assert [(entry["index"], entry["sweep_point"]) for entry in manifest["sweep_points"]] == [
        (0, {"topology.wan.latency": "10ms"}),
        (1, {"topology.wan.latency": "40ms"}),
    ]
    assert [entry["wan"][0]["latency_ns"] for entry in manifest["sweep_points"]] == [10_000_000, 40_000_000]
    assert manifest["sweep_points"][0]["variants"]["many"]["placement"] == [[["east-0", 0], ["west-0", 0]]]
    assert (manifest["warmup_iterations"], manifest["tokens_per_iteration"]) == (1, 4 * 4096)


def test_what_a_sweep_changes_stands_with_the_sweep_points(tmp_path: Path) -> None:
    manifest = gather_manifest(experiment(sweep={"training.microbatches": [1, 2]}), checkout=tmp_path)
    assert manifest["tokens_per_iteration"] is None
    assert [entry["tokens_per_iteration"] for entry in manifest["sweep_points"]] == [4096, 2 * 4096]
    assert manifest["warmup_iterations"] == 1


def test_the_time_is_written_in_utc(tmp_path: Path) -> None:
    created = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2)))
    assert gather_manifest(experiment(), created=created, checkout=tmp_path)["created"] == "2030-01-02T01:04:05+00:00"
    now = datetime.fromisoformat(gather_manifest(experiment(), checkout=tmp_path)["created"])
    assert abs(datetime.now(UTC) - now) < timedelta(minutes=1)


def test_a_folder_without_git_has_no_revision(tmp_path: Path) -> None:
    assert gather_manifest(experiment(), checkout=tmp_path)["git"] is None


def test_a_process_asks_git_once_however_many_runs_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    tools, checkout = tmp_path / "tools", tmp_path / "checkout"
    tools.mkdir()
    checkout.mkdir()
    git = tools / "git"
    git.write_text(f"#!/bin/sh\necho asked >> {asked}\necho '# branch.oid 0123abc'\n", encoding="utf-8")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    manifests = [gather_manifest(experiment(seed=seed), checkout=checkout) for seed in (1, 2)]
    assert [manifest["git"] for manifest in manifests] == [{"revision": "0123abc", "dirty": False}] * 2
    assert asked.read_text(encoding="utf-8").splitlines() == ["asked"]


def test_schedules_of_other_packages_are_reported_and_those_of_this_one_are_not(tmp_path: Path) -> None:
    assert gather_manifest(experiment(), checkout=tmp_path)["foreign_schedules"] == []


def test_equal_facts_are_reported_once() -> None:
    assert without_repetition({"a": {"mtu": 1500, "gso": True}, "b": {"mtu": 1500, "gso": True}}) == {
        "mtu": 1500,
        "gso": True,
    }


def test_different_facts_are_reported_by_owner() -> None:
    facts = {"a": {"mtu": 1500, "gso": True}, "b": {"mtu": 9000, "gso": True, "lro": False}}
    assert without_repetition(facts) == {"mtu": {"a": 1500, "b": 9000}, "gso": True, "lro": {"b": False}}


def test_no_owners_have_no_facts() -> None:
    assert without_repetition({}) == {}
