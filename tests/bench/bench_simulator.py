"""Time the simulator and the bound at 100 to 10,240 GPUs: Atlas with sharing, 5 datacenters, 64 microbatches.

Every size runs in a process of its own, so that its memory is its own; planning the schedule counts as well. One part
stands for all equal ones, and every GPU by itself beside that, each compiled and not compiled: all give the same to the
byte. Times are CPU seconds.
"""

import json
import math
import os
import resource
import subprocess
import sys
import time
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from wanbed.ground.compiled_core.core_build import build_core
from wanbed.ground.compiled_core.core_modules import ROOT
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

STAGES, PER_POINT, MICROBATCHES = 10, 4, 64
SIZES = (120, 600, 2_000, 10_240)


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
                "options": {"split": "never"},
                "transport": {"connections": "auto", "sharing": "temporal", "pipelines_per_cell": PER_POINT},
            }
        ],
    }


def measured(
    gpus: int, *, symmetry: bool, trunk: str = "unlimited", gpus_per_host: int = 1, pure: bool = True
) -> dict[str, float]:
    """What this file, run as a program, prints of one size."""
    asked = json.dumps([document(gpus, trunk=trunk, gpus_per_host=gpus_per_host), symmetry])
    argv = [sys.executable, str(Path(__file__)), asked]
    environment = {**os.environ, "WANBED_PURE": "1" if pure else "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=900, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_scale() -> None:
    print(
        "\n  GPUs  one for all  core      resolve s  simulate s  bound s  events     us an event  peak MiB  makespan s"
    )
    build_core()
    ends: dict[int, set[tuple[float, str]]] = {}
    simulated_s: dict[tuple[bool, bool], list[float]] = {}
    for gpus, symmetry, pure in product(SIZES, (True, False), (True, False)):
        found = measured(gpus, symmetry=symmetry, pure=pure)
        ends.setdefault(gpus, set()).add((found["makespan_s"], str(found["bytes"])))
        simulated_s.setdefault((symmetry, pure), []).append(found["simulate_s"])
        text = f"{found['resolve_s']:9.2f}  {found['simulate_s']:10.2f}  {found['bound_s']:7.2f}  {found['spans']:9.0f}"
        per_event = "" if symmetry else f"{found['simulate_s'] / found['spans'] * 1e6:.1f}"
        core = "pure" if pure else "compiled"
        print(
            f"{gpus:6d}  {'yes' if symmetry else 'no':11s}  {core:8s}  {text}  {per_event:>12s}"
            f"  {found['peak_mib']:8.0f}  {found['makespan_s']:.3f}",
            flush=True,
        )
        assert symmetry or found["bound_s"] < found["simulate_s"]
    for pure in (True, False):
        times_s = simulated_s[False, pure]
        exponent = math.log(times_s[-1] / times_s[1]) / math.log(SIZES[-1] / SIZES[1])
        print(f"every GPU, {'pure' if pure else 'compiled'}: time grows with GPUs to the power of {exponent:.2f}")
    assert all(len(of_size) == 1 for of_size in ends.values())


def test_trunks_and_hosts_that_are_shared() -> None:
    for trunk, gpus_per_host in (("100Gbit", 1), ("100Gbit", 8)):
        found = measured(640, symmetry=True, trunk=trunk, gpus_per_host=gpus_per_host)
        print(
            f"\n640 GPUs, {gpus_per_host} a host, trunks of {trunk}: {found['resolve_s']:.2f} s to resolve, "
            f"{found['simulate_s']:.2f} s to simulate"
        )
        assert found["makespan_s"] > 0


def test_full_trunks_without_equal_parts_cost_no_more_per_transfer_the_more_there_are() -> None:
    print("\n  GPUs  simulate s  us per span  peak MiB")
    cost = {}
    for gpus in (320, 640, 1_280):
        found = measured(gpus, symmetry=False, trunk="50Gbit")
        cost[gpus] = found["simulate_s"] / found["spans"]
        print(f"{gpus:6d}  {found['simulate_s']:10.2f}  {cost[gpus] * 1e6:11.1f}  {found['peak_mib']:8.0f}")
    assert cost[1_280] < 2 * cost[320]


def main(asked: str) -> None:
    """Simulate what ``asked`` says, and print what it took."""
    written, symmetry = json.loads(asked)
    begin = time.process_time()
    (point,) = parse_experiment(written, "benchmark", Path()).points()
    resolved = time.process_time()
    simulation = simulate_variant(point.topology, point.variants[0], 1, symmetry=symmetry)
    done = time.process_time()
    lower_bounds(point.topology, point.variants[0])
    bounded = time.process_time()
    ((begin_ns, end_ns),) = simulation.windows_ns
    print(
        json.dumps(
            {
                "resolve_s": resolved - begin,
                "simulate_s": done - resolved,
                "bound_s": bounded - done,
                "spans": len(simulation.spans.rank),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "makespan_s": (end_ns - begin_ns) / 1e9,
                "bytes": sha256(np.ascontiguousarray(simulation.spans.end_ns).tobytes()).hexdigest(),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
