"""The steps of the first hour, and their run: whatever becomes of one, the others follow."""

import re
import shlex
import tarfile
import time
from itertools import pairwise
from pathlib import Path

import pytest

from studies.gpu_kit import first_hour
from studies.gpu_kit.first_hour import main, run_steps
from studies.gpu_kit.steps import EXPERIMENT, PLANNED, STEPS, KitStep
from tests.support.until import until_within
from wanbed.runner.planner.experiment_file import load_experiment

ROOT = Path(__file__).parents[3]
PART_LIMIT_S = 600


def step(name: str, command: str, limit_s: int = 60) -> KitStep:
    return KitStep(1, name, limit_s, command, "something")


def test_a_step_that_fails_or_hangs_does_not_end_the_hour(tmp_path: Path) -> None:
    steps = [
        step("fails", "echo no >&2; exit 3"),
        step("hangs", "echo begun; sleep 600", limit_s=1),
        step("goes", "echo one; echo two"),
    ]
    outcomes = list(run_steps(steps, tmp_path / "out"))
    assert [(outcome.status, outcome.last_line) for outcome in outcomes] == [(3, "no"), (None, "begun"), (0, "two")]
    assert (tmp_path / "out/goes.txt").read_text() == "one\ntwo\n"
    assert [outcome.text.split()[1] for outcome in outcomes] == ["STATUS", "OVER", "ok"]


def test_steps_end_when_the_time_is_over_and_what_was_begun_last_gets_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_hour, "GRACE_S", 0.5)
    steps = [step("long", "sleep 600"), step("never", f"touch {tmp_path / 'begun'}")]
    begun_s = time.monotonic()
    outcomes = list(run_steps(steps, tmp_path / "out", within_s=1.5))
    assert time.monotonic() - begun_s < 60
    assert [(outcome.status, outcome.last_line) for outcome in outcomes] == [
        (None, ""),
        (None, "not begun: the time is over"),
    ]
    assert not (tmp_path / "begun").exists()


def test_the_archive_has_all_results_after_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "out.tgz"
    look = f"tar tzf {archive} 2>&1; true"
    monkeypatch.setattr(first_hour, "STEPS", (step("one", "echo 1"), step("two", look)))
    assert main([str(tmp_path / "out"), "--archive", str(archive)]) == 0
    assert "out/one.txt" in (tmp_path / "out/two.txt").read_text().split()
    with tarfile.open(archive) as packed:
        assert {"out/one.txt", "out/two.txt"} <= set(packed.getnames())


def test_a_step_that_ignores_its_end_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_hour, "GRACE_S", 0.5)
    started = tmp_path / "started"
    command = f"trap '' TERM; (trap '' TERM; echo $BASHPID > {started}; exec sleep 600) & wait; sleep 600"
    list(run_steps([step("hangs", command, limit_s=2)], tmp_path))
    # The signal takes a moment to arrive.
    until_within(60, lambda: ended(int(started.read_text())))


def ended(pid: int) -> bool:
    """Tell whether a process has ended, also where process 1 has not collected it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_each_part_fits_into_ten_minutes() -> None:
    for part in {each.part for each in STEPS}:
        limits = {each.name: each.limit_s for each in STEPS if each.part == part}
        assert sum(limits.values()) <= PART_LIMIT_S, limits


def test_names_are_different() -> None:
    assert len({each.name for each in STEPS}) == len(STEPS)


def overrides(command: str) -> list[str]:
    words = shlex.split(command)
    return [value for option, value in pairwise(words) if option == "--set"]


@pytest.mark.parametrize("rehearse", [False, True])
@pytest.mark.parametrize(
    "name", [each.name for each in STEPS if "{experiment}" in each.command or "{planned}" in each.command]
)
def test_the_experiment_is_valid_as_every_step_sets_it(name: str, rehearse: bool, tmp_path: Path) -> None:
    (one,) = [each for each in STEPS if each.name == name]
    command = one.shell(str(tmp_path), rehearse=rehearse)
    if command is None:
        return
    # The profile is measured by an earlier step.
    estimated = "cpu" if rehearse else "a100"
    settings = [re.sub(rf"{re.escape(str(tmp_path))}/\w+\.json", estimated, each) for each in overrides(command)]
    (point,) = load_experiment(EXPERIMENT if "{experiment}" in one.command else PLANNED, settings).points()
    assert point.spec.dilation == 1


def test_a_rehearsal_runs_the_chosen_steps_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--rehearse", "--step", "facts", "--step", "profile"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("facts ")
    assert printed.count("\n") == 1
    assert "Linux" in (tmp_path / "facts.txt").read_text()


@pytest.mark.parametrize("one", STEPS, ids=[each.name for each in STEPS])
def test_the_page_has_every_step(one: KitStep) -> None:
    page = (ROOT / "docs/gpus.md").read_text(encoding="utf-8")
    assert f"| {one.part} | `{one.name}` | {one.limit_s} s | {one.shows} |" in page
