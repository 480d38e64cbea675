"""Run ``wanbed profile`` on the CPU. Its file drives a simulation and the plan of a replay."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.commands_here import called
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.workloads.bubbletea.profile_files import load_prefill_profile
from wanbed.workloads.compute.device.torch_device import choose_kernels
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.profiles.catalogue import load_profile
from wanbed.workloads.profiles.compute_profile import MeasuredProfile

TOY = "hidden=16,context=8,heads=2,vocabulary=32"

QUICK = ["--device", "cpu", "--repeats", "7", "--repeat-ms", "1", "--warmup-ms", "0"]


def profile(*arguments: str | Path, status: int = 0) -> Any:
    return called("profile", *arguments, status=status)


def experiment(tmp_path: Path, **compute: Any) -> Path:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "5ms", "rate": "1Gbit"},
        },
        "model": {"layers": 3, "hidden": 16, "context": 8, "heads": 2, "vocabulary": 32},
        "compute": compute,
        "training": {"precision": "fp32", "microbatches": 4},
        "engine": "simulate",
    }
    file = tmp_path / "exp.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture(scope="module")
def measured_toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The file of a profile, and the output of its command."""
    path = tmp_path_factory.mktemp("profile") / "toy.json"
    return path, json.loads(profile(TOY, *QUICK, "--output", path, "--json").stdout)


def test_a_measured_profile_drives_a_run_with_the_times_that_were_measured(
    tmp_path: Path, measured_toy: tuple[Path, dict[str, Any]]
) -> None:
    path, text = measured_toy
    measured = load_profile(str(path))
    assert isinstance(measured, MeasuredProfile)
    assert measured.conditions is not None
    assert measured.conditions.threads == 1
    assert measured.conditions.ceiling.flops_per_s == text["ceiling_flops_per_s"]
    (model,) = measured.models
    assert [len(stage.forward.repeats_ns) for stage in model.stages] == [7, 7, 7]

    (point,) = load_experiment(experiment(tmp_path, kind="replay", profile=str(path))).points()
    work = point.variants[0].work
    assert work.forward_ns[1] == model.layer.forward_ns
    assert work.backward_ns[0] == model.layer.backward_ns + model.embedding.backward_ns
    assert work.optimizer_ns[2] == model.layer.optimizer_ns + model.head.optimizer_ns


def test_achieved_flops_are_reported_beside_the_ceiling(measured_toy: tuple[Path, dict[str, Any]]) -> None:
    _, text = measured_toy
    assert len(text["figures"]) == 3
    for figure in text["figures"]:
        assert set(figure["times"]) == {
            "forward",
            "recompute",
            "backward",
            "backward_input",
            "backward_weight",
            "optimizer",
        }
        assert figure["of_ceiling"] == pytest.approx(figure["achieved_flops_per_s"] / text["ceiling_flops_per_s"])
    unsteady = {(each["what"], each["action"]) for each in text["unsteady"]}
    for figure in text["figures"]:
        for action, time in figure["times"].items():
            assert ((figure["what"], action) in unsteady) == (time["spread"] > 0.03)


def test_a_measured_prefill_profile_is_fitted_to_its_prompts(tmp_path: Path) -> None:
    path = tmp_path / "prefill.json"
    done = profile("llama-tiny", *QUICK, "--prompts", "8,64,192", "--layers", "2", "--output", path)
    assert "prompt of 192 tokens" in done.stdout
    fitted = load_prefill_profile(str(path), INFERENCE_MODELS["llama-tiny"])
    assert fitted.measured
    assert fitted.error is not None
    assert (fitted.error.points, fitted.error.least_tokens, fitted.error.most_tokens) == (5, 8, 192)
    assert "chunk of 64 tokens after 8" in done.stdout
    assert "chunk of 64 tokens after 64" in done.stdout


def test_the_ceilings_spread_clocks_and_kernels_are_shown(tmp_path: Path) -> None:
    try:
        done = profile(TOY, *QUICK, "--deterministic", "--output", tmp_path / "toy.json")
    finally:
        choose_kernels(deterministic=False)
    assert re.search(r"^ceiling: .* GFLOP/s, spread .*%, the product of two", done.stdout, re.MULTILINE)
    assert "kernels: only those that give the same bits in every run\n" in done.stdout
    conditions = json.loads((tmp_path / "toy.json").read_text())["conditions"]
    assert conditions["deterministic"] is True
    assert conditions["during"]["samples"] >= 6
    assert conditions["ceiling"]["clocks"]["samples"] >= 1


@pytest.mark.parametrize("deterministic", [True, False, None])
def test_a_run_says_that_its_times_were_measured_with_deterministic_kernels(
    deterministic: bool | None, tmp_path: Path, measured_toy: tuple[Path, dict[str, Any]]
) -> None:
    document = json.loads(measured_toy[0].read_text())
    document["conditions"]["deterministic"] = deterministic
    (tmp_path / "toy.json").write_text(json.dumps(document))
    file = experiment(tmp_path, kind="replay", profile="./toy.json")
    done = called("simulate", str(file), "--runs", str(tmp_path / "runs"))
    line = "wanbed: compute.profile ./toy.json: measured with deterministic kernels only, which are slower on a GPU "
    assert (line in done.stderr) is (deterministic is True)
    (manifest,) = (tmp_path / "runs").glob("*/manifest.json")
    (point,) = json.loads(manifest.read_text())["sweep_points"]
    assert point["profile_conditions"]["deterministic"] is deterministic
    assert point["profile_conditions"]["versions"]["torch"] == document["conditions"]["versions"]["torch"]


def test_a_dry_run_lists_measurements_and_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = json.loads(profile("gpt-tiny", "--device", "cpu", "--dry-run", "--json").stdout)
    assert line["profile"] is None
    assert line["fits"] is True
    assert [entry["what"] for entry in line["would_measure"]] == [
        "gpt-tiny, first stage of 1 layer",
        "gpt-tiny, middle stage of 1 layer",
        "gpt-tiny, last stage of 1 layer",
        "a product of 1024 x 1024 matrices",
    ]
    assert all(entry["memory_bytes"] > 0 for entry in line["would_measure"])
    assert list(tmp_path.iterdir()) == []
    text = profile("gpt-tiny", "--device", "cpu", "--dry-run").stdout
    assert "gpt-tiny, middle stage of 1 layer: about " in text


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_what_does_not_fit_is_refused_before_it_is_tried(tmp_path: Path, dry_run: list[str]) -> None:
    done = profile("hidden=65536,context=65536,heads=64,vocabulary=50000", *QUICK, *dry_run, status=5)
    assert done.stderr.splitlines()[-1].startswith("wanbed: memory: hidden=65536,")


def test_a_file_that_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    path.write_text("mine")
    done = profile(TOY, *QUICK, "--output", path, status=2)
    assert done.stderr == f"wanbed: {path}: the file exists already: give another --output, or --replace\n"
    assert path.read_text() == "mine"
    profile(TOY, *QUICK, "--output", path, "--replace")
    assert load_profile(str(path)).basis == "measured"
    assert [file.name for file in tmp_path.iterdir()] == ["toy.json"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["gpt-c"], "wanbed: MODEL: 'gpt-c' is no model: "),
        ([TOY, "--output", "toy.yaml"], "wanbed: --output toy.yaml: a profile's name ends in .json"),
        (["llama-tiny", "--prompts", "8;9"], "wanbed: --prompts 8;9: give numbers of tokens"),
    ],
)
def test_bad_input_is_reported_in_one_line(arguments: list[str], text: str) -> None:
    done = profile(*arguments, "--device", "cpu", status=2)
    assert done.stderr.startswith(text)
    assert done.stderr.count("\n") == 1
