"""Scripts as users write them: without a guard, with ``python -c``, in a notebook, beside files of our names."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """
import wanbed

experiment = wanbed.Experiment(
    topology={"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {"latency": "10ms"}},
    compute={"forward": "1ms", "activation": "64KiB"},
    training={"microbatches": 2},
    variants=[{"name": "v", "schedule": SCHEDULE}],
    sweep={"topology.wan.latency": ["10ms", "20ms"]},
)
print(len(wanbed.simulate(experiment, jobs=JOBS).trials), "trials")
"""
OWN_SCHEDULE = """
from wanbed import Action, ActionKind, FixedOrder


class Mine(FixedOrder):
    def order(self, stage):
        forwards = [Action(ActionKind.FORWARD, microbatch) for microbatch in range(self.shape.microbatches)]
        return forwards + [each for done in forwards for each in self.backward(stage, done.microbatch)]
"""


def sweep(schedule: str = '"gpipe"', jobs: str = "2") -> str:
    return SWEEP.replace("SCHEDULE", schedule).replace("JOBS", jobs)


def python(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python in a folder; this checkout is where an installed package would be."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def script(folder: Path, text: str, name: str = "script.py") -> "subprocess.CompletedProcess[str]":
    (folder / name).write_text(text, encoding="utf-8")
    return python(folder, name)


def test_a_script_without_a_guard_is_run_once_whatever_the_number_of_processes(tmp_path: Path) -> None:
    done = script(tmp_path, sweep())
    assert (done.stdout, done.stderr) == ("2 trials\n", "")
    assert len(list(tmp_path.glob("runs/*"))) == 1


def test_a_command_line_works_like_a_script(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", sweep())
    assert (done.stdout, done.stderr) == ("2 trials\n", "")


def test_a_notebook_works_like_a_script(tmp_path: Path) -> None:
    """Its cells are executed in the module ``__main__``, which has no file."""
    cells = f"import __main__\nfor cell in {[OWN_SCHEDULE, sweep('Mine', 'None')]!r}:\n    exec(cell, vars(__main__))\n"
    done = python(tmp_path, "-c", cells)
    assert (done.stdout, done.stderr) == ("2 trials\n", "")


def test_a_schedule_in_a_module_beside_the_script_is_found_by_every_process(tmp_path: Path) -> None:
    (tmp_path / "schedules_of_mine.py").write_text(OWN_SCHEDULE, encoding="utf-8")
    done = script(tmp_path, "from schedules_of_mine import Mine\n" + sweep("Mine"))
    assert (done.stdout, done.stderr) == ("2 trials\n", "")


def test_a_schedule_in_the_script_itself_is_simulated_by_one_process(tmp_path: Path) -> None:
    assert script(tmp_path, OWN_SCHEDULE + sweep("Mine", "None")).stdout == "2 trials\n"
    refused = script(tmp_path, OWN_SCHEDULE + sweep("Mine", "2")).stderr.splitlines()[-1]
    assert refused.endswith(
        "jobs: 2 processes cannot import a schedule that this script or notebook defines itself: move it to a module, "
        "or leave jobs out"
    )


def test_modules_named_as_our_folders_are_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "results.py").write_text("MINE = 'mine'", encoding="utf-8")
    (tmp_path / "ground").mkdir()
    done = script(tmp_path, f"import results{sweep()}print(results.MINE)\n", "runner.py")
    assert (done.stdout, done.stderr) == ("2 trials\nmine\n", "")
