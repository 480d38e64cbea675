"""Power a machine of a rack off at random moments of a run, start it again, and continue the run each time.

``python -m tests.bench.bench_powered_off_machines [MOMENTS] [SEED]``, as root: by default 10 moments of seed 1. Three
User-Mode Linux guests with a Ray node each play the machines. A moment is up to as long after the driver's start as the
first, unhurt run took, and hits any of them. It fails if something is left on the other machines after 30 s, if the run
is not marked as incomplete, or if it cannot be continued in the end. Ten moments take about 20 minutes.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.rack.guests.guest_cluster import GuestCluster, guest_cluster, nodes_of
from tests.support.rack.guests.power_off import check_marked, power_off, power_on, start_run

DATACENTERS = ("east", "central", "west")
DOCUMENT = {
    "name": "powered off",
    "topology": {
        "datacenters": [{"name": name, "hosts": 1} for name in DATACENTERS],
        "wan": {"latency": "10ms", "rate": "20Mbit"},
    },
    "compute": {"forward": "40ms", "backward": "80ms", "activation": "64KiB"},
    "training": {"microbatches": 4, "iterations": 10, "warmup": 1},
    "variants": [{"name": name, "schedule": name} for name in ("1f1b", "gpipe", "zb-h1")],
}


def unhurt_s(rack: GuestCluster, folder: Path) -> float:
    """Return how long the run takes if nothing happens."""
    folder.mkdir()
    begin_s = time.monotonic()
    driver = start_run(rack, written(folder))
    _, errors = driver.communicate()
    assert driver.returncode in {0, 1}, errors
    return time.monotonic() - begin_s


def written(folder: Path) -> Path:
    """Write the experiment's file."""
    file = folder / "experiment.yaml"
    file.write_text(json.dumps(DOCUMENT))
    return file


def finished_trials(folder: Path) -> int:
    """Return how many trials the folder's runs have."""
    return len([*folder.rglob("trial.json")])


def power_off_at_random(moments: int = 10, seed: int = 1) -> None:
    """Power machines off at so many moments, and print a line for each."""
    nodes = nodes_of(DATACENTERS)
    draw = random.Random(seed)
    with TemporaryDirectory() as place, guest_cluster(*nodes, memory_mib=1536) as rack:
        folder = Path(place) / "hurt"
        folder.mkdir()
        longest_s = unhurt_s(rack, Path(place) / "unhurt")
        print(f"an unhurt run takes {longest_s:.0f} s; seed {seed}", flush=True)
        file, clean_s = written(folder), list[float]()
        for _ in range(moments):
            node, moment_s = draw.choice(nodes), draw.uniform(0, longest_s)
            driver = start_run(rack, file, "--resume")
            try:
                driver.wait(moment_s)
                print(f"over after less than {moment_s:.1f} s: starting anew", flush=True)
                folder = folder.with_name(f"{folder.name}-again")
                folder.mkdir()
                file = written(folder)
                continue
            except subprocess.TimeoutExpired:
                end = power_off(rack, node.name, driver)
            kept = check_marked(folder / "runs")
            clean_s.append(end.clean_s)
            print(
                f"{node.name} off after {moment_s:5.1f} s: others clean in {end.clean_s:4.1f} s, driver ended in "
                f"{end.ended_s:4.1f} s with status {end.status}; "
                f"{'no run yet' if kept is None else f'marked as incomplete, {kept} trials kept'}; load "
                f"{os.getloadavg()[0]:.1f}; {end.last_line}",
                flush=True,
            )
            assert end.status in {2, 4, 5}
            power_on(rack, node)
        driver = start_run(rack, file, "--resume")
        _, errors = driver.communicate()
        print(f"continued to the end: status {driver.returncode}, {finished_trials(folder)} trials", flush=True)
        print(f"others clean in {statistics.median(clean_s):.1f} s at the median, {max(clean_s):.1f} s at most")
        assert driver.returncode in {0, 1}, errors
        assert finished_trials(folder) == len(DOCUMENT["variants"])


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(f"{sys.argv[0]}: it plays machines by guests: call it as root")
    power_off_at_random(*map(int, sys.argv[1:3]))
