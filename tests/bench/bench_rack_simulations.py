"""How long 1,000 small sweep points take on a rack of two machines, of one, and on processes of this machine.

``python -m tests.bench.bench_rack_simulations``, as root. Each machine has one CPU and is played by a namespace: all of
them share this machine's cores with the process that resolves the file, stores what comes back and writes the report.
The sweep is that of ``bench_simulated_sweep``. The trials' time is the one that the command tells.
"""

import os
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.bench.bench_simulated_sweep import DOCUMENT, POINTS
from tests.support.ray.ray_cluster import RayCluster, RayNode, ray_cluster

LONGER = {**DOCUMENT, "training": {**DOCUMENT["training"], "iterations": 30}}


def sweep_s(cluster: RayCluster, file: Path, *options: str) -> tuple[float, float]:
    """Run ``wanbed simulate``. Return how long the trials took, and the whole command."""
    runs = file.parent / f"runs-{time.monotonic_ns()}"
    begin_s = time.perf_counter()
    words = ["simulate", str(file), "--runs", str(runs), "--json", *options]
    done = cluster.run_driver("-m", "wanbed.runner.cli.command_line", *words, timeout_s=1800)
    elapsed_s = time.perf_counter() - begin_s
    assert done.returncode == 0, done.stderr
    assert len(list(runs.rglob("trial.json"))) == POINTS
    (minutes, seconds), *_ = reversed(re.findall(r"(\d+):(\d\d) elapsed", done.stderr))
    return 60 * int(minutes) + int(seconds), elapsed_s


def test_a_thousand_sweep_points_on_two_machines() -> None:
    cores = len(os.sched_getaffinity(0))
    for name, document in (("3 iterations", DOCUMENT), ("30 iterations", LONGER)):
        with TemporaryDirectory() as folder:
            file = Path(folder) / "sweep.yaml"
            file.write_text(yaml.safe_dump(document), encoding="utf-8")
            print(f"\n{POINTS} sweep points of 4 GPUs and {name}; this machine has {cores} cores")
            for nodes in (1, 2):
                with ray_cluster(*(RayNode(f"machine-{number}") for number in range(nodes))) as cluster:
                    if nodes == 1:
                        show("--jobs 1", sweep_s(cluster, file, "--jobs", "1"))
                        show(f"--jobs {cores}", sweep_s(cluster, file, "--jobs", str(cores)))
                    show(f"--rack, {nodes} of 1 CPU", sweep_s(cluster, file, "--rack", cluster.address))


def show(how: str, times: tuple[float, float]) -> None:
    """Print a line of the table."""
    print(f"{how:<20} {times[0]:5.0f} s the trials, {times[1]:6.1f} s the command", flush=True)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(f"{sys.argv[0]}: it plays machines by namespaces: call it as root")
    test_a_thousand_sweep_points_on_two_machines()
