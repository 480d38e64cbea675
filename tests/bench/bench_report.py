"""How long the report of a million spans takes, how much memory, and how large it is; and beside its simulation.

The run has 10 trials of about 100,000 spans: Atlas and 1F1B on 20 GPUs at 5 latencies, simulated. The other runs have
one trial of 600 to 10,240 GPUs, that of ``bench_simulator``, of which one part is simulated for all, or every GPU.
Building a run and every report are processes of their own, so that a report's memory is its own.
"""

import json
import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bench.bench_simulator import document
from wanbed.results.reading.run import load_run
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulate_sweep
from wanbed.runner.simulator.variant_simulation import simulate_variant

SPANS = 1_000_000
MAX_FILE_BYTES = 10_000_000
MAX_PEAK_MIB = 1024
MANY_GPUS = 10_240
SIZES = [(600, True), (600, False), (2_000, True), (2_000, False), (MANY_GPUS, True), (MANY_GPUS, False)]
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
    argv = [sys.executable, "-m", "tests.bench.bench_report", what, str(folder), *arguments]
    root = Path(__file__).parents[2]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=900, cwd=root)
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


@pytest.mark.parametrize(("gpus", "symmetry"), SIZES)
def test_a_report_beside_its_simulation(tmp_path: Path, gpus: int, symmetry: bool) -> None:
    built = in_a_process("build", tmp_path, str(gpus), str(symmetry))
    found = in_a_process("report", Path(built["run"]), "html")
    ratio = found["cpu_s"] / built["cpu_s"]
    whole = "one part for all" if symmetry else "every GPU"
    print(
        f"\n{gpus:6d} GPUs, {whole:16s} {built['spans']:9,} spans: simulated and written in {built['cpu_s']:6.1f} s of "
        f"CPU, {built['peak_mib']:5.0f} MiB; reported in {found['cpu_s']:5.1f} s, {found['peak_mib']:5.0f} MiB; "
        f"ratio {ratio:.2f}"
    )
    assert symmetry or gpus < MANY_GPUS or ratio < 1


def build(root: Path, *size: str) -> dict[str, Any]:
    """Simulate the run below ``root``: ``DOCUMENT``, or the number of GPUs and whether one part stands for all."""
    written = document(int(size[0]), trunk="unlimited", gpus_per_host=1) if size else DOCUMENT
    simulate = partial(simulate_variant, symmetry=size[1:] != ("False",))
    begin_s = time.process_time()
    experiment = parse_experiment(written, "benchmark", root)
    store = begin_run(experiment, root / "runs", {"dilation": 1.0})
    with Progress(len(experiment.trials()), stream=open(os.devnull, "w")) as progress:
        simulate_sweep(experiment, store, pool=ProcessPool(1), progress=progress, simulate=simulate)
    store.finish()
    cpu_s, peak_mib = time.process_time() - begin_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    run = load_run(store.path, coded=True)
    found = {"run": str(store.path), "spans": len(run.spans), "trials": len(run.trials)}
    return {**found, "cpu_s": cpu_s, "peak_mib": peak_mib}


def report(run: Path, form: str) -> dict[str, Any]:
    """Time the whole command as a user types it, and read the memory of its process."""
    output = run / f"report.{form}"
    argv = [
        sys.executable,
        "-m",
        "wanbed.runner.cli.command_line",
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
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_mib": used.ru_maxrss / 1024, "bytes": output.stat().st_size}


if __name__ == "__main__":
    what, folder, *further = sys.argv[1:]
    print(json.dumps((build if what == "build" else report)(Path(folder), *further)))
