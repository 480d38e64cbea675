import json
import shutil
from pathlib import Path

import pytest

from tests.support.runner.commands_here import called, printed, refusal
from wanbed.results.records.run_store import MANIFEST
from wanbed.runner.runs.run_folder import exclusively

BEYOND_DATES = "beyond the dates that a computer counts: give a shorter age, or a day nearer to today"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("simulated")
    called("simulate", "first", "--runs", root)
    (run,) = root.iterdir()
    return run


@pytest.fixture(autouse=True)
def run(simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run in the folder ``runs``, beside one of 2020 that was cut off."""
    monkeypatch.chdir(tmp_path)
    run = Path("runs") / simulated.name
    shutil.copytree(simulated, run)
    cut_off = Path("runs") / "other-1"
    cut_off.mkdir()
    manifest = json.loads((run / MANIFEST).read_text())
    manifest |= {"name": "other", "complete": False, "created": "2020-01-01T00:00:00+00:00"}
    (cut_off / MANIFEST).write_text(json.dumps(manifest))
    return run


def listed(*arguments: str) -> list[str]:
    return [Path(run["run"]).name for run in printed("runs", *arguments)["runs"]]


def test_runs_are_listed_with_trials_iteration_time_and_size(run: Path) -> None:
    lines = called("runs").stdout.splitlines()
    (line,) = (line for line in lines if run.name in line)
    assert [" ".join(cell.split()) for cell in line.strip("│").split("│")][2:5] == ["simulated", "1/1", "912 ms"]
    (line,) = (line for line in lines if "other-1" in line)
    assert "unfinished, 0/1" in line


def test_a_folder_or_clock_that_would_change_the_terminal_is_shown_escaped(run: Path) -> None:
    hostile = "\x1b[31mred\u202e"
    manifest = json.loads((run / MANIFEST).read_text())
    (run / MANIFEST).write_text(json.dumps({**manifest, "engine": "emulate", "clock": hostile}))
    renamed = run.rename(Path("runs") / hostile)
    texts = [called("runs").output, called("runs", "--remove", "--yes", renamed).output]
    assert [each for text in texts for each in ("\x1b", "\u202e") if each in text] == []
    assert texts[1] == "removed runs/\\x1b[31mred\\u202e\n"


def test_a_damaged_run_is_named_with_its_damage_and_the_others_are_listed(run: Path) -> None:
    (run / MANIFEST).write_text("{")
    done = called("runs")
    assert all(words in done.stdout for words in ("other-1", "damaged"))
    assert done.stderr == f"wanbed: {run}: damaged: {MANIFEST}: not JSON, the file is damaged\n"


def test_the_document_has_exact_figures(run: Path) -> None:
    (found,) = printed("runs", run.name)["runs"]
    assert (found["run"], found["experiment"], found["state"]) == (str(run), "first", "complete")
    assert (found["finished_trials"], found["planned_trials"]) == (1, 1)
    assert found["shortest_iteration_time_s"] == found["longest_iteration_time_s"] == pytest.approx(0.912, abs=1e-3)
    assert found["size_bytes"] == sum(file.stat().st_size for file in run.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["first", "other"]),
        (["--experiment", "first"], ["first"]),
        (["--experiment", "o*"], ["other"]),
        (["--experiment", "fir"], []),
        (["--since", "2d"], ["first"]),
        (["--since", "2019-12-31"], ["first", "other"]),
        (["--since", "2020-01-03"], ["first"]),
        (["--runs", "elsewhere"], []),
    ],
)
def test_runs_are_found_by_experiment_and_age(options: list[str], names: list[str]) -> None:
    assert [name.partition("-")[0] for name in listed(*options)] == names


def test_a_folder_without_runs_says_so() -> None:
    assert called("runs", "--runs", "elsewhere").stdout == "no runs in elsewhere\n"
    assert called("runs", "--experiment", "x").stdout == "no such runs in runs\n"


def test_runs_are_removed_by_name_and_by_path(run: Path) -> None:
    done = called("runs", "--remove", "--yes", "other-1", run)
    assert done.stdout == f"removed runs/other-1\nremoved {run}\n"
    assert listed() == []


def test_what_was_removed_is_a_document_too() -> None:
    assert printed("runs", "--remove", "--yes", "other-1") == {"removed": ["runs/other-1"]}


def test_nothing_is_removed_where_nobody_can_be_asked() -> None:
    line = refusal("runs", "--remove", "other-1", answer="y\n")
    assert line == "--remove: nobody can be asked here: give --yes to remove without asking"


@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("n\n", 2), ("\n", 2)])
def test_a_terminal_is_asked_first(answer: str, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.runner.cli.runs._can_ask", lambda: True)
    assert "runs/other-1\nRemove 1 run (" in called("runs", "--remove", "other-1", answer=answer).stderr
    assert len(listed()) == left


def test_if_one_cannot_be_removed_none_is(run: Path) -> None:
    with exclusively(run):
        line = refusal("runs", "--remove", "--yes", "other-1", run.name)
    assert line == f"{run}: a process is writing this run: let it end first"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--since", "5x"], "--since 5x: give an age like 30min, 12h, 2d or 1w, or a day like 2026-01-31"),
        (["--since", "٢d"], "--since ٢d: give an age like 30min, 12h, 2d or 1w, or a day like 2026-01-31"),
        (["--since", "1000000d"], f"--since 1000000d: {BEYOND_DATES}"),
        (["--since", "0001-01-01"], f"--since 0001-01-01: {BEYOND_DATES}"),
        (["--remove"], "--remove: give the runs to remove by path or name, and no --experiment or --since"),
        (["--remove", "--yes", "none"], "none: no such run: give its name in runs, or its path"),
        (["--remove", "--yes", "/etc"], "/etc: not a run's folder, it has no manifest.json: wanbed runs lists runs"),
        (["x\ny"], "x y: no such run: give its name in runs, or its path"),
    ],
)
def test_wrong_use_is_refused_in_a_line(arguments: list[str], text: str) -> None:
    assert refusal("runs", *arguments) == text
