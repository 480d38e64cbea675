"""How long a sweep of 1,000 small sweep points takes from the file to the report, and where the time goes.

``python -m tests.bench.bench_simulated_sweep [--jobs N]``. A sweep point is 4 GPUs in 2 datacenters, 4 stages, 8
microbatches and 3 iterations of one variant; 40 latencies are swept with 25 rates. Afterwards the whole command is
timed as a user types it.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import yaml

from tests.support.runner.wanbed_command import WANBED
from wanbed import results
from wanbed.results.report.report import write_report
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulate_sweep

POINTS = 1000
DOCUMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "1MiB"},
    "training": {"stages": 4, "microbatches": 8, "iterations": 3},
    "sweep": {
        "topology.wan.latency": [f"{latency}ms" for latency in range(1, 41)],
        "topology.wan.rate": [f"{100 * rate}Mbit" for rate in range(1, 26)],
    },
}

Value = TypeVar("Value")


def timed(what: str, step: Callable[[], Value]) -> Value:
    """Do one step and print how long it took."""
    start_s = time.perf_counter()
    value = step()
    print(f"{time.perf_counter() - start_s:7.2f} s  {what}")
    return value


def breakdown(file: Path, jobs: int) -> int:
    """Print the time of every step of a sweep, and return how many trials there are in the end."""
    experiment = timed("read the file and resolve every sweep point", lambda: load_experiment(file, engine="simulate"))
    store = timed("begin the run", lambda: begin_run(experiment, file.parent, {"dilation": 1.0}))

    def sweep() -> None:
        with Progress(POINTS, stream=open(os.devnull, "w")) as progress:
            simulate_sweep(experiment, store, pool=ProcessPool(jobs), progress=progress)
        store.finish()

    timed(f"simulate and store, {jobs} at a time", sweep)
    run = timed("load the run", lambda: results.load(store.path))
    timed("write the report", lambda: write_report([run], store.path / "report.html"))
    return len(run.trials)


def whole_command(file: Path, jobs: int) -> None:
    """Run ``wanbed simulate`` on the file, as a process of its own."""
    command = [*WANBED, "simulate", str(file), "--jobs", str(jobs), "--json"]
    subprocess.run([*command, "--runs", str(file.parent / "runs")], check=True, capture_output=True)


def test_a_sweep_of_a_thousand_small_sweep_points() -> None:
    main(["--jobs", str(len(os.sched_getaffinity(0)))])


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    jobs = parser.parse_args(arguments).jobs
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.yaml"
        file.write_text(yaml.safe_dump(DOCUMENT), encoding="utf-8")
        print(f"\n{POINTS} cells of 4 GPUs on {jobs} cores")
        assert breakdown(file, jobs) == POINTS
        timed("wanbed simulate FILE, all included", lambda: whole_command(file, jobs))


if __name__ == "__main__":
    main()
