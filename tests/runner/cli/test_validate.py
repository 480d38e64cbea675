"""Run ``wanbed validate`` with a fake simulator, whose results a test chooses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.runner.emulated_run import Simulator, Times, constant, write_run
from wanbed.runner.cli.command_line import app
from wanbed.runner.simulator.deadlock import SimulationError
from wanbed.runner.validation.agreement import Agreement, Compared, write_agreement
from wanbed.runner.validation.case import LawCheck
from wanbed.runner.validation.comparison import VariantComparison

EXACT = LawCheck("case", "law", (5,), (5,))

ONE: Times = {(0, "gpipe"): [2.0]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is typed; golden values and closed forms hold there."""
    monkeypatch.chdir(tmp_path)
    checks_are(monkeypatch, EXACT)
    return tmp_path


def checks_are(monkeypatch: pytest.MonkeyPatch, check: LawCheck) -> None:
    monkeypatch.setattr("wanbed.runner.validation.validation.golden_check", lambda *_: check)
    monkeypatch.setattr("wanbed.runner.validation.validation.CLOSED_FORMS", (lambda _: check,))


def wanbed(monkeypatch: pytest.MonkeyPatch, simulator: Simulator, *arguments: str) -> Any:
    monkeypatch.setattr("wanbed.runner.simulator.variant_simulation.simulate_variant", simulator)
    return CliRunner().invoke(app, ["validate", *arguments])


def test_without_arguments_the_page_is_printed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    done = wanbed(monkeypatch, constant(1.0))
    assert done.exit_code == 0
    assert "## Golden values" in done.stdout
    assert list(folder.iterdir()) == []


def test_a_page_and_its_picture_are_written_where_asked(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    run = write_run(folder / "runs", ONE)
    done = wanbed(monkeypatch, constant(2.0), str(run), "--output", "validation.md")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "validation.md\n", "")
    assert "](validation.png)" in Path("validation.md").read_text(encoding="utf-8")
    assert Path("validation.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_run_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    run = write_run(folder / "runs", ONE)
    written = []
    for _ in range(2):
        wanbed(monkeypatch, constant(2.0), str(run), "--output", "validation.md")
        written.append((Path("validation.md").read_bytes(), Path("validation.png").read_bytes()))
    assert written[0] == written[1]


def test_a_large_error_is_status_1_and_writes_the_page(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    run = write_run(folder / "runs", ONE)
    done = wanbed(monkeypatch, constant(2.2), str(run), "--output", "validation.md")
    assert done.exit_code == 1
    assert "wanbed: 1 of 1 simulated iteration times are more than 5% off the emulated ones.\n" in done.stderr
    assert "**It does not agree.**" in Path("validation.md").read_text(encoding="utf-8")


def test_a_value_that_is_not_exact_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    checks_are(monkeypatch, LawCheck("case", "law", (5,), (6,)))
    done = wanbed(monkeypatch, constant(1.0))
    assert done.exit_code == 1
    assert "**It does not agree.**" in done.stdout


def test_json_is_one_document_on_standard_output(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    run = write_run(folder / "runs", ONE)
    done = wanbed(monkeypatch, constant(2.2), str(run), "--json", "--output", "validation.md")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["page"], found["agrees"]) == (1, "validation.md", False)
    assert found["comparisons"][0]["error"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "not a run's folder"),
        (["--output", "no/such/folder.md"], "no page can be written there"),
        (["--output", "."], "no page can be written there"),
        (["--output", "validation.png"], "the picture goes there"),
        (["--output", "/proc/validation.md"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_status_2(monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str) -> None:
    done = wanbed(monkeypatch, constant(1.0), *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_that_was_simulated_itself_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    run = write_run(folder / "runs", ONE, manifest={"engine": "simulate"})
    done = wanbed(monkeypatch, constant(2.0), str(run))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "it was not emulated" in done.stderr


def test_a_run_without_a_finished_trial_is_status_4(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    done = wanbed(monkeypatch, constant(2.0), str(write_run(folder / "runs", {})))
    assert done.exit_code == 4
    assert "the run is complete, but its folder trials has none" in done.stderr


def test_a_deadlocked_simulation_is_status_2(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def stuck(*_: object) -> float:
        raise SimulationError("stage 1 waits for the activation of microbatch 0")

    done = wanbed(monkeypatch, Simulator(stuck), str(write_run(folder / "runs", ONE)))
    assert done.exit_code == 2
    assert done.stderr == "wanbed: stage 1 waits for the activation of microbatch 0\n"


def test_what_make_paper_found_is_part_of_the_page_and_of_the_verdict(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    for error, status in ((0.01, 0), (0.06, 1)):
        found = VariantComparison(0, {}, "gpipe", 1, 30.0, 30.0, 30.0, 30.0 * (1 + error))
        write_agreement(folder, Agreement((Compared("headline", "headline-1", (found,)),)))
        done = wanbed(monkeypatch, constant(1.0), "--paper", str(folder))
        assert done.exit_code == status
        assert "## Virtual time against simulated" in done.stdout


def test_a_folder_that_make_paper_did_not_write_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    done = wanbed(monkeypatch, constant(1.0), "--paper", str(folder))
    assert done.exit_code == 2
    assert "make paper writes it" in done.stderr
