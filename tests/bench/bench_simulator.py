"""How long the simulator takes, from 100 to 10,240 GPUs: Atlas with sharing over 5 datacenters, 64 microbatches.

Every size runs in a process of its own, so that its memory is its own; planning the schedule counts as well. One part
stands for all equal ones, and, up to 2,000 GPUs, every GPU by itself beside that: both give the same to the byte.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runner.planner.experiment_file import parse_experiment
from runner.simulator.variant_simulation import simulate_variant

STAGES, PER_POINT, MICROBATCHES = 10, 4, 64
SIZES = ((120, True), (120, False), (600, True), (600, False), (2_000, True), (2_000, False), (10_240, True))
WHOLE_SIZES = (10_240,)


def document(gpus: int, *, trunk: str, gpus_per_host: int) -> dict[str, Any]:
    """``gpus`` over 5 datacenters, as many stages as divide them, in DP-cells of 4 pipelines."""
    hosts = -(-gpus // (5 * gpus_per_host))
    return {
        "name": "scale",
        "engine": "simulate",
        "topology": {
            "datacenters": [{"name": f"dc{n}", "hosts": hosts, "gpus_per_host": gpus_per_host} for n in range(5)],
            "intra": {"latency": "50us", "rate": "100Gbit"},
            "wan": {"latency": "40ms", "rate": trunk, "node_pair_rate": "5Gbit"},
        },
        "model": {"hidden": 4096, "context": 4096},
        "compute": {"forward": "25ms", "backward": "50ms", "recompute": "25ms", "gradient": "768MiB"},
        "training": {
            "stages": STAGES,
            "pipelines": gpus // STAGES,
            "microbatches": MICROBATCHES,
            "iterations": 1,
            "warmup": 0,
        },
        "variants": [
            {
                "name": "atlas",
                "schedule": "atlas",
                "transport": {"connections": "auto", "sharing": "temporal", "pipelines_per_cell": PER_POINT},
            }
        ],
    }


def measured(gpus: int, *, symmetry: bool, trunk: str = "unlimited", gpus_per_host: int = 1) -> dict[str, float]:
    """What this file, run as a program, prints of one size."""
    asked = json.dumps([document(gpus, trunk=trunk, gpus_per_host=gpus_per_host), symmetry])
    argv = [sys.executable, str(Path(__file__)), asked]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=900)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_scale() -> None:
    print("\n  GPUs  one for all  resolve s  simulate s  events     us per event  peak MiB  iteration s")
    iterations: dict[int, set[float]] = {}
    for gpus, symmetry in (*SIZES, *((gpus, False) for gpus in WHOLE_SIZES)):
        found = measured(gpus, symmetry=symmetry)
        iterations.setdefault(gpus, set()).add(found["iteration_s"])
        text = f"{found['resolve_s']:9.2f}  {found['simulate_s']:10.2f}  {found['spans']:9.0f}"
        per_event = "" if symmetry else f"{found['simulate_s'] / found['spans'] * 1e6:.1f}"
        print(
            f"{gpus:6d}  {'yes' if symmetry else 'no':11s}  {text}  {per_event:>12s}  {found['peak_mib']:8.0f}"
            f"  {found['iteration_s']:.3f}"
        )
    assert all(len(times) == 1 for times in iterations.values())


def test_trunks_and_hosts_that_are_shared() -> None:
    for trunk, gpus_per_host in (("100Gbit", 1), ("100Gbit", 8)):
        found = measured(640, symmetry=True, trunk=trunk, gpus_per_host=gpus_per_host)
        print(
            f"\n640 GPUs, {gpus_per_host} a host, trunks of {trunk}: {found['resolve_s']:.2f} s to resolve, "
            f"{found['simulate_s']:.2f} s to simulate"
        )
        assert found["iteration_s"] > 0


def main(asked: str) -> None:
    """Simulate what ``asked`` says, and print what it took."""
    written, symmetry = json.loads(asked)
    begin = time.perf_counter()
    (point,) = parse_experiment(written, "benchmark", Path()).points()
    resolved = time.perf_counter()
    simulation = simulate_variant(point.topology, point.variants[0], 1, symmetry=symmetry)
    done = time.perf_counter()
    print(
        json.dumps(
            {
                "resolve_s": resolved - begin,
                "simulate_s": done - resolved,
                "spans": len(simulation.spans.rank),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "iteration_s": simulation.iteration_time_ns(0) / 1e9,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
