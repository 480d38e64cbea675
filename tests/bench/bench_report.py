"""How long the report of a million spans takes, how much memory, and how large it is.

The run has 10 trials of about 100,000 spans: Atlas and 1F1B on 20 GPUs at 5 latencies, simulated. Building it and every
report run in processes of their own, so that a report's memory is its own.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import results
from runner.planner.experiment_file import parse_experiment
from runner.runs.progress import Progress
from runner.runs.run_folder import begin_run
from runner.simulated_runs.simulated_sweep import simulate_sweep

SPANS = 1_000_000
MAX_FILE_BYTES = 10_000_000
MAX_PEAK_MIB = 1024
ITERATIONS = 12
DOCUMENT: dict[str, Any] = {
    "name": "million",
    "engine": "simulate",
    "topology": {
        "datacenters": [{"name": f"dc{n}", "hosts": 4} for n in range(5)],
        "wan": {"latency": "40ms", "rate": "100Gbit", "node_pair_rate": "5Gbit"},
    },
    "model": {"hidden": 4096, "context": 4096},
    "compute": {"forward": "25ms", "backward": "50ms", "recompute": "25ms", "gradient": "768MiB"},
    "training": {"stages": 10, "pipelines": 2, "microbatches": 64, "iterations": ITERATIONS, "warmup": 1},
    "variants": [
        {"name": "1f1b", "schedule": "1f1b"},
        {"name": "atlas", "schedule": "atlas", "transport": {"connections": "auto", "sharing": "temporal"}},
    ],
    "sweep": {"topology.wan.latency": [f"{10 * step}ms" for step in range(1, 6)]},
}


def in_a_process(what: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """What this file, run as a program, prints."""
    argv = [sys.executable, str(Path(__file__)), what, str(folder), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=900)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_million_spans(tmp_path: Path) -> None:
    built = in_a_process("build", tmp_path)
    print(f"\n{built['spans']:,} spans in {built['trials']} trials")
    assert built["spans"] >= SPANS
    for form in ("html", "csv"):
        found = in_a_process("report", Path(built["run"]), form)
        print(f"{form:4s} {found['seconds']:6.2f} s  {found['peak_mib']:5.0f} MiB  {found['bytes'] / 1e6:6.2f} MB")
        assert found["peak_mib"] < MAX_PEAK_MIB
        assert found["bytes"] < MAX_FILE_BYTES


def build(root: Path) -> dict[str, Any]:
    """Simulate the run below ``root``."""
    experiment = parse_experiment(DOCUMENT, "benchmark", root)
    store = begin_run(experiment, root / "runs", {"dilation": 1.0})
    with Progress(len(experiment.trials()), stream=open(os.devnull, "w")) as progress:
        simulate_sweep(experiment, store, jobs=1, progress=progress)
    store.finish()
    run = results.load(store.path)
    return {"run": str(store.path), "spans": len(run.spans), "trials": len(run.trials)}


def report(run: Path, form: str) -> dict[str, Any]:
    """Time the whole command as a user types it, and read the memory of its process."""
    output = run / f"report.{form}"
    argv = [
        sys.executable,
        "-m",
        "runner.cli.command_line",
        "report",
        str(run),
        "--format",
        form,
        "--output",
        str(output),
    ]
    begin = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"seconds": seconds, "peak_mib": peak_mib, "bytes": output.stat().st_size}


if __name__ == "__main__":
    what, folder, *further = sys.argv[1:]
    print(json.dumps(build(Path(folder)) if what == "build" else report(Path(folder), *further)))
