"""Run the parts in parallel, each as its own ``wanbed run`` on its own core.

A virtual-time guest runs on one core, because tracer and traced process switch fastest when they share it. The output
of a part goes to a log file beside its run. The child processes are terminated when this process ends.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from studies.paper.part import PaperPart, Volume
from wanbed.module_process import module_command
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.faults import DONE, OUTSIDE_TOLERANCE
from wanbed.runner.runs.run_folder import DEFAULT_PARALLEL_RUNS, latest_run

Log = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """A part to run: its experiment, and whether an earlier run of it was begun."""

    part: PaperPart
    experiment: Experiment
    begun: bool

    def command(self, engine: str, runs: Path, core: int) -> list[str]:
        """Return the command that runs the part on that core. It ends with the thread that started it."""
        return [
            *("setpriv", "--pdeathsig", "TERM", "taskset", "--cpu-list", str(core)),
            *module_command("wanbed", "run", str(self.part.file)),
            *("--engine", engine, "--runs", str(runs)),
            *(["--resume"] if self.begun else []),
        ]


def jobs_left(parts: Sequence[PaperPart], engine: str, runs: Path) -> list[Job]:
    """Return the jobs that are not complete below ``runs``.

    Jobs with the most bytes come first, so that the cores finish at about the same time.
    """
    jobs = []
    for part in parts:
        experiment = part.experiment(engine)
        store = latest_run(experiment, runs)
        if store is None or not store.manifest["complete"]:
            jobs.append(Job(part, experiment, store is not None))
    return sorted(jobs, key=lambda job: Volume.of(job.experiment).total_bytes, reverse=True)


class _Children:
    """The running child processes, which are terminated when this process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.ending = False

    def run(self, command: Sequence[str], log: Path) -> int:
        """Run one process to its end and return its status. After ``end`` no process starts: return -SIGTERM."""
        with log.open("wb") as output:
            with self._lock:
                if self.ending:
                    return -signal.SIGTERM
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
                self._running.add(process)
            status = process.wait()
            with self._lock:
                self._running.remove(process)
        return status

    def end(self) -> None:
        """Terminate all processes, and let no other start."""
        with self._lock:
            self.ending = True
            for process in self._running:
                process.terminate()


def run_jobs(
    jobs: Sequence[Job], engine: str, runs: Path, report: Log, *, side_by_side: int = DEFAULT_PARALLEL_RUNS
) -> list[str]:
    """Run every job, ``side_by_side`` at a time, each on one core. Return a line for each that failed.

    The child processes are terminated when this function ends, also by an exception.
    """
    runs.mkdir(parents=True, exist_ok=True)
    waiting, failed, children = iter(jobs), list[str](), _Children()

    def work(core: int) -> None:
        for job in waiting:
            if children.ending:
                return
            log = runs / f"{job.part.name}.log"
            report(f"{job.part.name}: {'resumes' if job.begun else 'starts'} on core {core}, its progress is in {log}")
            began_s = time.monotonic()
            status = children.run(job.command(engine, runs, core), log)
            outcome = f"{job.part.name}: {_outcome(status, log)} after {(time.monotonic() - began_s) / 60:.1f} min"
            report(outcome)
            if status not in {DONE, OUTSIDE_TOLERANCE}:
                failed.append(outcome)

    cores = sorted(os.sched_getaffinity(0))[:side_by_side]
    with ThreadPoolExecutor(len(cores)) as pool:
        try:
            list(pool.map(work, cores))
        finally:
            children.end()
    return failed


def _outcome(status: int, log: Path) -> str:
    if status == DONE:
        return "done"
    if status == OUTSIDE_TOLERANCE:
        return "done, with links outside tolerance or a saturated machine,"
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"failed with status {status} ({lines[-1] if lines else 'it printed nothing'})"
