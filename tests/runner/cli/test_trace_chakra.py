"""Run ``wanbed trace --format chakra`` on a simulated run, and replay what it writes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.results.chakra.wire_format import rank_file
from tests.support.runner.commands_here import called, refusal, wanbed
from wanbed.results import load

TOPOLOGY = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
    "wan": {"latency": "40ms", "rate": "1Gbit"},
}
EXPERIMENT: dict[str, Any] = {
    "topology": TOPOLOGY,
    "compute": {"forward": "10ms", "activation": "1MiB", "gradient": "2MB", "optimizer": "3ms"},
    "training": {"microbatches": 4, "iterations": 3, "pipelines": 2},
    # Of a trace no packets are followed.
    "variants": [
        {"name": "all in, all out", "schedule": "gpipe", "transport": {"model": "mean"}},
        {"name": "1f1b", "schedule": "1f1b", "transport": {"model": "mean"}},
    ],
}


def simulated(folder: Path, experiment: dict[str, Any]) -> Path:
    """The folder of a run."""
    folder.mkdir(exist_ok=True)
    (folder / "exp.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
    done = called("simulate", str(folder / "exp.yaml"), "--runs", str(folder / "runs"), "--jobs", "1", "--json")
    return Path(json.loads(done.stdout)["run"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("simulated"), EXPERIMENT)


def refused(*arguments: str) -> str:
    return refusal("trace", *arguments, "--format", "chakra")


def test_every_rank_has_a_file_and_the_document_counts_nodes(run: Path, tmp_path: Path) -> None:
    asked = ["--format", "chakra", "--variant", "all in, all out", "--output", str(tmp_path / "t"), "--json"]
    document = json.loads(wanbed("trace", str(run), *asked).stdout)
    assert document == {
        "trace": str(tmp_path / "t"),
        "variant": "all in, all out",
        "iteration": 1,
        "placement": ["east", "west", "east", "west"],
        "computations": 4 * (4 + 4 + 1),
        "sends": 16,
        "receives": 16,
        "collectives": 4,
    }
    paths = sorted((tmp_path / "t").iterdir())
    assert [path.name for path in paths] == [f"all-in-all-out.{rank}.et" for rank in range(4)]
    _, nodes = rank_file(paths[1].read_bytes())
    assert [node["name"] for node in nodes if node["type"] == 7] == ["all_reduce"]
    (forward,) = [node for node in nodes if node["name"] == "forward 2"]
    assert (forward["duration"], forward["attr"]["is_cpu_op"]) == (10_000, ("bool", False))
    assert forward["attr"]["num_ops"][0] == "int64"
    (sent,) = [node for node in nodes if node["name"] == "send gradient 2"]
    assert sent["attr"]["comm_size"] == ("int64", 2**20)
    assert [sent["attr"][name] for name in ("comm_src", "comm_dst", "comm_tag")] == [("int32", n) for n in (1, 0, 2)]


def test_the_trace_of_an_iteration_is_replayed_in_the_same_time(run: Path, tmp_path: Path) -> None:
    done = wanbed("trace", str(run), "--format", "chakra", "--variant", "1f1b", "--output", str(tmp_path / "t"))
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/t\n")
    replay = {
        "topology": TOPOLOGY,
        "compute": {"trace": "t"},
        "variants": [
            {"name": "replay", "placement": ["east", "west", "east", "west"]},
            {"name": "in order of the hosts"},
        ],
    }
    times = _times(simulated(tmp_path, replay))
    assert times["replay"] == _times(run)["1f1b"] != times["in order of the hosts"]


def test_the_trace_of_a_replay_is_that_of_the_replayed_trace(run: Path, tmp_path: Path) -> None:
    wanbed("trace", str(run), "--format", "chakra", "--variant", "1f1b", "--output", str(tmp_path / "t"))
    replay = {
        "topology": TOPOLOGY,
        "compute": {"trace": "t"},
        "variants": [{"name": "1f1b", "placement": ["east", "west", "east", "west"]}],
    }
    replayed = simulated(tmp_path, replay)
    called("trace", str(replayed), "--format", "chakra", "--output", str(tmp_path / "again"))
    for rank in range(4):
        one, other = (rank_file((tmp_path / name / f"1f1b.{rank}.et").read_bytes())[1] for name in ("t", "again"))
        kinds = [[node["type"] for node in nodes] for nodes in (one, other)]
        assert sorted(kinds[0]) == sorted(kinds[1])
        busy = [sum(node["duration"] for node in nodes) for nodes in (one, other)]
        assert busy[0] == busy[1]


def _times(run: Path) -> dict[str, float]:
    """The iteration time of each variant."""
    summary = load(run).summary
    return dict(zip(summary["variant"], summary["iteration_time_s"], strict=True))


def test_one_trial_has_to_be_chosen(run: Path) -> None:
    assert refused(str(run)) == (
        f"{run}: --format chakra writes one trial, and 2 are selected: "
        "give --variant (choose of: all in, all out; 1f1b)"
    )


def test_optimizer_steps_that_wait_for_all_stages_are_refused(tmp_path: Path) -> None:
    training = {**EXPERIMENT["training"], "optimizer_waits": "all stages"}
    waiting = simulated(tmp_path, {**EXPERIMENT, "training": training, "variants": EXPERIMENT["variants"][1:]})
    assert refused(str(waiting)) == (
        "1f1b, repeat 0: its optimizer steps wait for a gradient norm of all ranks, which --format chakra does not "
        "know: select a trial with optimizer_waits: own, or another --format"
    )
    called("trace", str(waiting), "--output", str(tmp_path / "perfetto.json"))
    assert "gradient norm" in (tmp_path / "perfetto.json").read_text(encoding="utf-8")


def test_an_iteration_that_is_not_there_is_refused(run: Path) -> None:
    assert refused(str(run), "--variant", "1f1b", "--iteration", "3") == (
        "--iteration 3: there is none such that computes, choose of: 0; 1; 2"
    )


def test_a_folder_with_another_trace_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "gpt.0.et").write_bytes(b"")
    assert refused(str(run), "--variant", "1f1b", "--output", str(tmp_path)) == (
        f"{tmp_path}: has gpt.0.et of another trace: give another --output"
    )


def test_a_file_is_no_folder_for_a_trace(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be written" in refused(str(run), "--variant", "1f1b", "--output", str(tmp_path / "file"))
