"""``wanbed simulate --from RUN``: the times of a run in place of those of the file."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import wanbed
from tests.support.runner.commands_here import refusal
from wanbed.runner.cli.command_line import app

SMALL: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "10ms", "rate": "1Gbit"},
    },
    "compute": {
        "forward": ["10ms", "20ms"],
        "activation": "1KiB",
        "gradient": "1KiB",
        "jitter": {"distribution": "lognormal", "spread": "5%"},
    },
    "training": {"stages": 2, "pipelines": 2, "microbatches": 4, "iterations": 3},
    "repeats": 3,
}


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exp.yaml").write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    Path("plain.yaml").write_text(
        yaml.safe_dump({**SMALL, "compute": {"activation": "1KiB", "gradient": "1KiB"}}), encoding="utf-8"
    )


def simulated(*arguments: str) -> wanbed.Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wanbed.runner.cli.outcome.write_report", lambda runs, path: None)
        done = CliRunner().invoke(app, ["simulate", *arguments, "--jobs", "1", "--json"])
    assert done.exit_code == 0, done.output
    return wanbed.load(json.loads(done.stdout)["run"])


def times_s(run: wanbed.Run) -> list[float]:
    return [float(each) for each in run.summary["iteration_time_s"]]


def test_a_file_is_simulated_with_the_times_of_a_run() -> None:
    measured = wanbed.simulate("exp.yaml", jobs=1)
    assert len(set(times_s(measured))) == 3
    (median_s,) = times_s(simulated("plain.yaml", "--from", str(measured.path)))
    assert median_s == pytest.approx(sorted(times_s(measured))[1], rel=0.05)
    drawn = simulated("plain.yaml", "--from", str(measured.path), "--resample")
    assert len(set(times_s(drawn))) == 3
    assert times_s(drawn) == pytest.approx(times_s(measured), rel=0.1)
    assert drawn.manifest["experiment"]["compute"]["from"] == str(measured.path.resolve())
    assert drawn.manifest["repeats"] == 3


def test_the_same_file_draws_the_same_again() -> None:
    first, again = (wanbed.simulate("exp.yaml", jobs=1) for _ in range(2))
    assert times_s(first) == times_s(again)
    assert wanbed.simulate("exp.yaml", jobs=1, resume=True).path == again.path


def test_a_run_that_is_none_is_refused() -> None:
    line = refusal("simulate", "plain.yaml", "--from", "runs/none")
    assert line.startswith("plain.yaml --set compute.from=")
    assert "compute.from: " in line
    assert "no such file" in line.lower() or "manifest.json" in line


def test_resampling_needs_a_run() -> None:
    line = refusal("simulate", "plain.yaml", "--resample")
    assert line == "--resample: it draws from the times of a run: give --from RUN, or leave --resample out"
