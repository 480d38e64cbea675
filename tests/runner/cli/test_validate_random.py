"""Run ``wanbed validate --random`` with a fake guest and a fake simulator."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.runner.validation.test_random_execution import KERNEL, Guests
from tests.support.runner.commands_here import refusal
from tests.support.runner.emulated_run import constant
from wanbed.ground.errors import MissingError
from wanbed.runner.cli.command_line import app
from wanbed.runner.validation import random_execution
from wanbed.runner.validation.case import LawCheck

EXACT = LawCheck("case", "law", (5,), (5,))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("wanbed.runner.validation.validation.golden_check", lambda *_: EXACT)
    monkeypatch.setattr("wanbed.runner.validation.validation.CLOSED_FORMS", (lambda _: EXACT,))
    monkeypatch.setattr("wanbed.runner.cli.validate_random.virtual_kernel", lambda: KERNEL)
    monkeypatch.setattr(random_execution, "enter_virtual_time", Guests())
    return tmp_path


def wanbed(monkeypatch: pytest.MonkeyPatch, *arguments: str, simulated_s: float = 2.0) -> Any:
    """Every experiment takes 2 s in virtual time."""
    monkeypatch.setattr("wanbed.runner.simulator.variant_simulation.simulate_variant", constant(simulated_s))
    return CliRunner().invoke(app, ["validate", *arguments])


def test_experiments_that_agree_are_status_0(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    done = wanbed(monkeypatch, "--random", "3")
    assert done.exit_code == 0, done.output
    assert "None is farther off than 5%." in done.stdout
    files = sorted(path.name for path in (folder / "runs" / "random").glob("*.yaml"))
    assert files == ["random-1-000.yaml", "random-1-001.yaml", "random-1-002.yaml"]


def test_beyond_the_limits_is_status_1_and_the_worst_are_reported_with_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = wanbed(monkeypatch, "--random", "2", "--seed", "7", simulated_s=2.4)
    assert done.exit_code == 1
    text = "wanbed: runs/random/random-7-000.yaml: +20.0%, virtual time 2.000 s, simulated 2.400 s\n"
    assert text in done.stderr
    assert "wanbed: 0.0% of the random experiments are within 5%, fewer than 95%.\n" in done.stderr


def test_what_is_kept_makes_the_page_again_without_running(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    kept = folder / "kept"
    arguments = ("--drawn", "kept", "--output", "page.md")
    assert wanbed(monkeypatch, "--random", "2", *arguments, simulated_s=2.4).exit_code == 1
    written = (folder / "page.md").read_text()
    assert sorted(path.name for path in (kept / "experiments").iterdir()) == ["random-1-000.yaml", "random-1-001.yaml"]
    (kept / "explanations.yaml").write_text("causes: {a cause: why}\nexperiments: {random-1-000: a cause}\n")
    monkeypatch.setattr(random_execution, "enter_virtual_time", None)
    assert wanbed(monkeypatch, *arguments).exit_code == 1
    again = (folder / "page.md").read_text()
    assert "| a cause" in again
    assert again.count("| not explained") == written.count("| not explained") - 1 == 1
    assert "off and not explained: random-1-001." in again


def test_json_has_every_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(wanbed(monkeypatch, "--random", "2", "--json", simulated_s=2.4).stdout)["random"]
    assert [each["number"] for each in found["experiments"]] == [0, 1]
    assert found["median_error"] == pytest.approx(0.2)


def test_without_the_kernel_it_is_status_5_and_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingError("no virtual-time kernel: make virtual")

    monkeypatch.setattr("wanbed.runner.cli.validate_random.virtual_kernel", missing)
    assert refusal("validate", "--random", "2", status=5) == "no virtual-time kernel: make virtual"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--random", "0"], "--random: 0 is not from 1 to 1000"),
        (["--random", "1001"], "--random: 1001 is not from 1 to 1000"),
        (["--random", "2", "--seed", "-1"], "--seed: -1 is not from 0 to 2147483647"),
        (["--seed", "2"], "--seed: nothing is drawn: give --random N too"),
        (["--resume"], "--resume: nothing is drawn"),
        (["--jobs", "2"], "--jobs: nothing is drawn"),
        (["--drawn", "nowhere"], "nowhere/agreement.json: no such file"),
        (["--random", "2", "--runs", "/proc"], "--runs"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], words: str) -> None:
    assert words in refusal("validate", *arguments)
