"""Run ``wanbed validate`` with a fake simulator, whose results a test chooses."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.runner.commands_here import called, printed, refusal
from tests.support.runner.emulated_run import Simulator, Times, constant, write_run
from wanbed.ground.errors import SimulationError
from wanbed.runner.validation.agreement import Agreement, Compared, write_agreement
from wanbed.runner.validation.case import LawCheck
from wanbed.runner.validation.comparison import VariantComparison

EXACT = LawCheck("case", "law", (5,), (5,))

ONE: Times = {(0, "gpipe"): [2.0]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is typed; golden values and closed forms hold there, and iterations are simulated exactly."""
    monkeypatch.chdir(tmp_path)
    checks_are(monkeypatch, EXACT)
    monkeypatch.setattr("wanbed.runner.simulator.variant_simulation.simulate_variant", constant(2.0))
    return tmp_path


def checks_are(monkeypatch: pytest.MonkeyPatch, check: LawCheck) -> None:
    monkeypatch.setattr("wanbed.runner.validation.validation.golden_check", lambda *_: check)
    monkeypatch.setattr("wanbed.runner.validation.validation.CLOSED_FORMS", (lambda _: check,))


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Callable[[Simulator], None]:
    """Choose what simulates."""
    return partial(monkeypatch.setattr, "wanbed.runner.simulator.variant_simulation.simulate_variant")


@pytest.fixture
def run(folder: Path) -> Path:
    """A run whose iterations took two seconds."""
    return write_run(folder / "runs", ONE)


def test_without_arguments_the_page_is_printed(folder: Path) -> None:
    assert "## Golden values" in called("validate").stdout
    assert list(folder.iterdir()) == []


def test_a_page_and_its_picture_are_written_where_asked_with_the_same_bytes_each_time(run: Path) -> None:
    written = []
    for _ in range(2):
        done = called("validate", run, "--output", "validation.md")
        assert (done.stdout, done.stderr) == ("validation.md\n", "")
        written.append((Path("validation.md").read_bytes(), Path("validation.png").read_bytes()))
    assert written[0] == written[1]
    page, picture = written[0]
    assert b"](validation.png)" in page
    assert picture.startswith(b"\x89PNG")


def test_a_large_error_is_status_1_and_writes_the_page(run: Path, simulator: Callable[[Simulator], None]) -> None:
    simulator(constant(2.2))
    done = called("validate", run, "--output", "validation.md", status=1)
    assert "wanbed: 1 of 1 simulated iteration times are more than 5% off the emulated ones.\n" in done.stderr
    assert "**It does not agree.**" in Path("validation.md").read_text(encoding="utf-8")


def test_a_value_that_is_not_exact_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    checks_are(monkeypatch, LawCheck("case", "law", (5,), (6,)))
    assert "**It does not agree.**" in called("validate", status=1).stdout


def test_json_is_one_document_on_standard_output(run: Path, simulator: Callable[[Simulator], None]) -> None:
    simulator(constant(2.2))
    found = printed("validate", run, "--output", "validation.md", status=1)
    assert (found["page"], found["agrees"]) == ("validation.md", False)
    assert found["comparisons"][0]["error"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "not a run's folder"),
        (["--output", "no/such/folder.md"], "no page can be written there"),
        (["--output", "."], "no page can be written there"),
        (["--output", "validation.png"], "the picture goes there"),
        (["--output", "/proc/validation.md"], "cannot be written"),
        (["--paper", "."], "make paper writes it"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], words: str) -> None:
    assert words in refusal("validate", *arguments)


def test_a_run_that_was_simulated_itself_is_refused(folder: Path) -> None:
    run = write_run(folder / "runs", ONE, manifest={"engine": "simulate"})
    assert "it was not emulated" in refusal("validate", run)


def test_a_run_without_a_finished_trial_is_status_4(folder: Path) -> None:
    done = called("validate", write_run(folder / "runs", {}), status=4)
    assert "the run is complete, but its folder trials has none" in done.stderr


def test_a_deadlocked_simulation_is_status_2(run: Path, simulator: Callable[[Simulator], None]) -> None:
    def stuck(*_: object) -> float:
        raise SimulationError("stage 1 waits for the activation of microbatch 0")

    simulator(Simulator(stuck))
    assert refusal("validate", run) == "stage 1 waits for the activation of microbatch 0"


@pytest.mark.parametrize(("error", "status"), [(0.01, 0), (0.06, 1)])
def test_what_make_paper_found_is_part_of_the_page_and_of_the_verdict(folder: Path, error: float, status: int) -> None:
    found = VariantComparison(0, {}, "gpipe", 1, 30.0, 30.0, 30.0, 30.0 * (1 + error))
    write_agreement(folder, Agreement((Compared("headline", "headline-1", (found,)),)))
    assert "## Virtual time against simulated" in called("validate", "--paper", folder, status=status).stdout
