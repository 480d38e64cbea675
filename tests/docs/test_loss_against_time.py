"""The commands of docs/loss-against-time.md do what the page says, but for the training itself."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wanbed
from tests.docs.pages import DOCS, blocks
from tests.results.losses_on_paper import linear, losing_run
from wanbed.results.reading.run import load_run
from wanbed.runner.cli.command_line import app
from wanbed.runner.experiments.shipped_experiments import shipped_experiment

PAGE = DOCS / "loss-against-time.md"


def test_the_commands_take_the_runs_that_the_first_two_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train, simulate, *others = (line.split("#")[0].strip() for line in blocks(PAGE, "sh")[0].splitlines())
    assert (train, simulate) == ("wanbed run loss-against-time", "wanbed simulate loss-against-time")
    shipped = shipped_experiment("loss-against-time")
    assert shipped is not None
    experiment = wanbed.Experiment.from_file(shipped.path).with_values({"training.iterations": 20})
    simulated = wanbed.simulate(experiment)
    # What a training of the same file leaves, as far as these commands read it.
    described = {
        name: simulated.manifest[name]
        for name in ("experiment", "sweep_points", "variants", "tokens_per_iteration")
        if name in simulated.manifest
    }
    learnt = losing_run(
        tmp_path / "runs",
        losses={"dp": linear(5.0, 0.12), "1f1b": linear(5.0, 0.12)},
        iteration_ms=600,
        iterations=20,
        repeats=3,
        evaluate_every=10,
        manifest=described,
    )
    folders = {"RUN": str(learnt), "SIM": str(simulated.path)}
    for line in others:
        words = [folders.get(word, word) for word in shlex.split(line)]
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code in {0, 1}, f"{line}: {done.output}"
        if "--clock" in words and "--output" not in words:
            assert "simulated" in done.output, line
    assert "clock simulated" in Path("joined.html").read_text()
    assert load_run(simulated.path).losses.empty


def test_the_file_on_the_page_is_that_of_the_shipped_experiment() -> None:
    shipped = shipped_experiment("loss-against-time")
    assert shipped is not None
    text = shipped.path.read_text()
    for line in blocks(PAGE, "yaml")[0].splitlines():
        written = line.split("#")[0].rstrip()
        own = ("held_out", "repeats")
        assert written in text or written.strip().startswith(own), line
