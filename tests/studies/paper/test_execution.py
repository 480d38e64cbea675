"""Run jobs that are shell commands: check their cores, their logs and what is reported of them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from studies.paper.execution import Job, jobs_left, run_jobs
from studies.paper.part import FOLDER, PaperPart
from tests.support.until import until_within
from wanbed.module_process import module_command
from wanbed.results.records.run_store import RunStore
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.manifest import gather_manifest
from wanbed.runner.runs.run_folder import latest_run

until = partial(until_within, 60)

SMALL, LARGE = (PaperPart(name, name, (), ()) for name in ("fig4-timeline", "fig3-pp-latency"))


def begin(part: PaperPart, runs: Path, *, complete: bool) -> None:
    experiment = part.experiment("simulate")
    store = RunStore.create(runs, experiment.name, gather_manifest(experiment), experiment.config_hash)
    if complete:
        store.update_manifest({"complete": True})


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_experiment(FOLDER / "fig4-timeline.yaml")


@dataclass(frozen=True)
class ShellJob(Job):
    script: str = ""

    def command(self, engine: str, runs: Path, core: int) -> list[str]:
        return [*super().command(engine, runs, core)[:6], "sh", "-c", self.script]


def shell(experiment: Experiment, script: str, name: str = "part") -> ShellJob:
    return ShellJob(PaperPart(name, name, (), ()), experiment, begun=False, script=script)


def test_the_largest_job_runs_first_and_complete_parts_do_not(tmp_path: Path) -> None:
    assert [job.part for job in jobs_left([SMALL, LARGE], "simulate", tmp_path)] == [LARGE, SMALL]
    begin(LARGE, tmp_path, complete=True)
    assert [(job.part, job.begun) for job in jobs_left([SMALL, LARGE], "simulate", tmp_path)] == [(SMALL, False)]


def test_an_unfinished_part_is_resumed(tmp_path: Path) -> None:
    begin(SMALL, tmp_path, complete=False)
    (job,) = jobs_left([SMALL], "simulate", tmp_path)
    assert job.begun
    command = job.command("simulate", tmp_path, 1)
    assert command[:6] == ["setpriv", "--pdeathsig", "TERM", "taskset", "--cpu-list", "1"]
    assert command[6:] == [
        *module_command("wanbed", "run", str(SMALL.file)),
        *("--engine", "simulate", "--runs", str(tmp_path), "--resume"),
    ]


def test_a_run_is_found_by_its_current_configuration(tmp_path: Path) -> None:
    assert latest_run(SMALL.experiment("simulate"), tmp_path / "nowhere") is None
    begin(SMALL, tmp_path, complete=True)
    assert latest_run(SMALL.experiment("simulate"), tmp_path) is not None
    assert latest_run(SMALL.experiment("emulate"), tmp_path) is None


def test_each_job_is_pinned_to_a_core_and_logs_its_output(experiment: Experiment, tmp_path: Path) -> None:
    lines: list[str] = []
    jobs = [shell(experiment, "taskset -pc $$ && nproc", name) for name in ("one", "two", "three")]
    assert run_jobs(jobs, "emulate", tmp_path, lines.append) == []
    cores = {f"core {core}" for core in sorted(os.sched_getaffinity(0))[:2]}
    for name in ("one", "two", "three"):
        assert (tmp_path / f"{name}.log").read_text().splitlines()[-1] == "1"
        assert any(line.startswith(f"{name}: starts on core") for line in lines)
        assert any(line.startswith(f"{name}: done after") for line in lines)
    assert {word for line in lines for word in cores if word in line} == cores


def test_a_job_that_fails_is_one_line_with_its_stderr_tail_and_the_others_run(
    experiment: Experiment, tmp_path: Path
) -> None:
    lines: list[str] = []
    jobs = [shell(experiment, "echo first; echo the reason >&2; exit 5", "bad"), shell(experiment, "true", "good")]
    (failed,) = run_jobs(jobs, "emulate", tmp_path, lines.append, side_by_side=1)
    assert failed.startswith("bad: failed with status 5 (the reason) after ")
    assert any(line.startswith("good: done after") for line in lines)


def test_links_outside_tolerance_are_reported_but_no_failure(experiment: Experiment, tmp_path: Path) -> None:
    lines: list[str] = []
    assert run_jobs([shell(experiment, "exit 1")], "emulate", tmp_path, lines.append) == []
    assert lines[-1].startswith("part: done, with links outside tolerance or a saturated machine, after ")


def test_jobs_end_with_run_jobs(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from wanbed.runner.planner.experiment_file import load_experiment
from tests.studies.paper.test_execution import FOLDER, shell
from studies.paper.execution import run_jobs
job = shell(load_experiment(FOLDER / "fig4-timeline.yaml"), "echo $$; exec sleep 100")
run_jobs([job], "emulate", Path({str(tmp_path)!r}), lambda _: None)
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    log = tmp_path / "part.log"
    try:
        until(lambda: log.exists() and log.read_text().strip() != "")
        child = int(log.read_text())
    finally:
        process.kill()
        process.wait()
    until(lambda: not Path(f"/proc/{child}").exists())
