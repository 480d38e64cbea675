"""Test that every file that a user can name is refused at once where it is a pipe."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.runner.commands_here import called, refusal

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 1ms, rate: 100Mbit}
compute: {forward: 1ms, activation: 1KiB, gradient: 1KiB}
training: {microbatches: 2}
"""
PREFILL = EXPERIMENT.replace("hosts: 1}", "hosts: 4, serving_hosts: 1}").replace(
    "{microbatches: 2}", "{microbatches: 2, stages: 2, pipelines: 2}"
)
FILES = {
    "topology": "topology: PIPE\ncompute: {forward: 1ms, activation: 1KiB}\ntraining: {microbatches: 2}\n",
    "network preset": EXPERIMENT.replace("wan: {latency: 1ms, rate: 100Mbit}", "profile: PIPE.yaml"),
    "compute profile": EXPERIMENT.replace("{forward: 1ms, activation: 1KiB, gradient: 1KiB}", "{profile: ./PIPE.json}"),
    "prefill profile": PREFILL + "prefill: {profile: ./PIPE.json, rate: 1/s}\n",
    "request trace": PREFILL + "prefill: {trace: PIPE}\n",
    "text": EXPERIMENT.replace("{forward: 1ms, activation: 1KiB, gradient: 1KiB}", "{kind: torch}").replace(
        "{microbatches: 2}", "{microbatches: 2, text: PIPE}"
    )
    + "model: {layers: 2, hidden: 8, heads: 2, context: 8, vocabulary: 8}\n",
}


@pytest.fixture
def pipes(tmp_path: Path) -> Path:
    for name in ("PIPE", "PIPE.yaml", "PIPE.json"):
        os.mkfifo(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("command", ["simulate", "run", "plan", "calibrate"])
def test_a_pipe_for_an_experiment_file_is_refused(pipes: Path, command: str) -> None:
    assert "it is a pipe, not a regular file: save what it gives as a file first" in refusal(command, pipes / "PIPE")


@pytest.mark.parametrize("named", FILES)
def test_a_pipe_that_an_experiment_names_is_refused(pipes: Path, named: str) -> None:
    file = pipes / "exp.yaml"
    file.write_text(FILES[named])
    line = refusal("simulate", file, "--dry-run")
    assert "PIPE" in line
    assert "it is a pipe" in line or "is no file" in line


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    file = folder / "exp.yaml"
    file.write_text(EXPERIMENT)
    called("simulate", str(file), "--runs", str(folder / "runs"))
    return next((folder / "runs").iterdir())


@pytest.mark.parametrize("command", [("report",), ("trace",), ("compare", "SAME"), ("validate",)])
@pytest.mark.parametrize("name", ["manifest.json", "trial.json", "spans.parquet"])
def test_a_pipe_in_a_run_is_refused(simulated: Path, tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    run = shutil.copytree(simulated, tmp_path / "run")
    (file,) = run.rglob(name)
    file.unlink()
    os.mkfifo(file)
    assert "it is a pipe" in refusal(*[simulated if each == "SAME" else each for each in command], run)
