"""Run ``wanbed trace`` on a simulated run."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.results.trace_rules import load_trace, names_of, problems
from tests.support.runner.commands_here import called, printed, refusal, wanbed

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    },
    "compute": {"forward": "10ms", "activation": "1MiB"},
    "training": {"microbatches": 4, "iterations": 2},
    "variants": [
        {"name": "gpipe", "schedule": "gpipe"},
        {"name": "atlas", "schedule": "atlas", "transport": {"connections": "auto", "sharing": "temporal"}},
    ],
    "sweep": {"topology.wan.latency": ["10ms", "40ms"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "exp.yaml").write_text(yaml.safe_dump(EXPERIMENT), encoding="utf-8")
    done = called("simulate", str(folder / "exp.yaml"), "--runs", str(folder / "runs"), "--jobs", "1", "--json")
    return Path(json.loads(done.stdout)["run"])


def test_the_trace_is_written_into_the_run_and_its_path_printed(run: Path) -> None:
    done = wanbed("trace", str(run))
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{run}/trace.json.gz\n", "")
    trace = load_trace(run / "trace.json.gz")
    assert problems(trace) == []
    assert names_of(trace, "process_name")[4] == "east / east-0"


def test_the_document_says_what_the_trace_holds(run: Path, tmp_path: Path) -> None:
    destination = tmp_path / "all.json"
    document = json.loads(wanbed("trace", str(run), "--json", "--output", str(destination)).stdout)
    phases = [event["ph"] for event in load_trace(destination)["traceEvents"]]
    assert document == {
        "trace": str(destination),
        "trials": 4,
        "slices": phases.count("X") + phases.count("b"),
        "flows": phases.count("s"),
        "counters": phases.count("C"),
        "instants": phases.count("i"),
    }


def test_one_iteration_of_one_trial_is_chosen(run: Path, tmp_path: Path) -> None:
    asked = ["--point", "topology.wan.latency=40ms", "--variant", "atlas", "--repeat", "0", "--iteration", "1"]
    destination = tmp_path / "one.json.gz"
    assert printed("trace", str(run), *asked, "--output", str(destination))["trials"] == 1
    assert problems(load_trace(destination)) == []
    assert (wanbed("trace", str(run), "--point", "1", *asked[2:], "--json").exit_code) == 0


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            ["--point", "topology.wan.latency=20ms"],
            "--point topology.wan.latency=20ms: there is none such, "
            "choose of: 0 (topology.wan.latency=10ms); 1 (topology.wan.latency=40ms)",
        ),
        (["--variant", "megatron"], "--variant megatron: there is none such, choose of: gpipe; atlas"),
        (["--variant", "a\nb"], "--variant a b: there is none such, choose of: gpipe; atlas"),
        (["--repeat", "1"], "--repeat 1: there is none such, choose of: 0"),
        (["--iteration", "2"], "--iteration 2: there is none such, choose of: 0; 1"),
    ],
)
def test_missing_trials_raise_one_line(run: Path, asked: list[str], text: str) -> None:
    assert refusal("trace", str(run), *asked) == text


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "{run}/nowhere/trace.json",
            "{run}/nowhere/trace.json: cannot be written (No such file or directory), give another --output",
        ),
        ("{run}", "{run}: cannot be written (it is a folder), give another --output"),
        ("-", "--output -: a trace does not go to standard output, give a file"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused(run: Path, output: str, words: str) -> None:
    assert refusal("trace", run, "--output", output.format(run=run)) == words.format(run=run)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert refusal("trace", str(tmp_path)).startswith(f"{tmp_path}: not a run's folder")


def test_a_run_without_trials_has_no_data(run: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes((run / "manifest.json").read_bytes())
    done = wanbed("trace", str(tmp_path))
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr == (
        f"wanbed: {tmp_path}: the run is complete, but its folder trials has none: restore that folder, or run again\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
