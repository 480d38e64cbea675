"""Iteration times over a rack of guests beside those of one machine: ``atlas-vs-baselines``, cut to two latencies.

``python -m tests.bench.bench_rack_against_one_machine [DILATION [VARIANT or LATENCY...]]``, as root: by default at
dilation 12, with all variants and latencies, in about half an hour. Three User-Mode Linux guests with a Ray node each
carry four hosts each. The same file then runs on this machine twice, both at the same time, so that it is known how far
one machine agrees with itself. Guests and this machine do not run at the same time: two cores do not carry all three.
All have the same priority. Every rate and size is a quarter of that of the shipped experiment, every window is half,
and there are 4 microbatches instead of 16, so that little has to be carried. A trial is marked with ! if a core that it
needed was saturated.

The exit status is 1 if one machine agrees with itself within 2 % and the rack is not within 5 % of it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.rack.guests.guest_cluster import GuestCluster, guest_cluster, nodes_of
from wanbed.results import load

DILATION = 12.0
AGREEMENT, TOLERANCE = 0.02, 0.05
DATACENTERS = ("east", "central", "west")
HOSTS = 4
LATENCY = "topology.wan.latency"
WINDOW = "48KiB"
"""Of which 23 segments are in flight on one machine, and 24 of those that the overlay makes shorter: 0.7 % more bytes.

Of 24 KiB, a quarter of the shipped window, these would be 11 and 12 segments, 5 % more bytes: what is compared would be
how many of them a window holds.
"""
ONE = {"connections": 1, "window": WINDOW}
SHARED = {"connections": "auto", "window": WINDOW, "sharing": "temporal", "pipelines_per_cell": 2}
DOCUMENT: dict[str, Any] = {
    "name": "atlas-vs-baselines, cut",
    "topology": {
        "datacenters": [{"name": name, "hosts": HOSTS} for name in DATACENTERS],
        "intra": {"latency": "50us", "rate": "390.625Mbit"},
        "wan": {"latency": "20ms", "rate": "390.625Mbit", "node_pair_rate": "19.53125Mbit"},
    },
    "model": "gpt-a",
    "compute": {
        "kind": "replay",
        "profile": "a100",
        "activation": "128KiB",
        "gradient": ["4864KiB", "3MiB", "3MiB", "3MiB", "3MiB", "4608KiB"],
    },
    "training": {"stages": 6, "pipelines": 2, "microbatches": 4, "iterations": 2, "warmup": 1},
    "variants": [
        {"name": "gpipe", "schedule": "gpipe", "transport": ONE},
        {"name": "megatron", "schedule": "1f1b", "transport": ONE},
        {"name": "varuna", "schedule": "varuna", "transport": ONE},
        {"name": "atlas", "schedule": "atlas", "options": {"split": "never"}, "transport": SHARED},
    ],
    "sweep": {LATENCY: ["10ms", "20ms"]},
}


@dataclass(frozen=True)
class Measured:
    """One trial: its iteration time, the mean load of the busiest machine's cores, and whether these were saturated."""

    iteration_time_s: float
    busy: float
    saturated: bool

    @property
    def load_text(self) -> str:
        """Say how busy the cores were."""
        return f"{self.busy:.0%}{'!' if self.saturated else ''}"


Trials = dict[tuple[str, str], Measured]


def trials_of(driver: "subprocess.Popen[str]", what: str) -> Trials:
    """Wait for a run's end, and return its trials by latency and variant. Say if its links were not as configured."""
    output, errors = driver.communicate()
    if driver.returncode not in {0, 1}:
        raise RuntimeError(f"{what}: {errors}")
    run = load(Path(json.loads(output)["run"]))
    print(
        f"{what}: {run.calibration.within_tolerance.sum()} of {len(run.calibration)} links within tolerance, "
        f"{run.summary.saturated.sum()} of {len(run.trials)} trials saturated; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    busy = {trial.id: trial.facts["machine_load"]["busy"] for trial in run.trials}
    found = {
        (row[LATENCY], row["variant"]): Measured(row["iteration_time_s"], busy[trial.id], row["saturated"])
        for trial, row in zip(run.trials, run.summary.to_dict("records"), strict=True)
    }
    for (latency, variant), each in found.items():
        print(f"  {variant:<9} {latency:>5} {each.iteration_time_s:8.3f} s, cores {each.load_text} busy", flush=True)
    return found


def on_one_machine(file: Path, what: str) -> "subprocess.Popen[str]":
    """Start the experiment on this machine, at the priority that the guests have."""
    argv = ["nice", "--adjustment=-20", sys.executable, "-m", "wanbed", "run", str(file), "--substrate", "guest"]
    argv += ["--runs", str(file.parent / what), "--json"]
    return subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def over_guests(rack: GuestCluster, file: Path) -> "subprocess.Popen[str]":
    """Start the experiment over guests."""
    where = ("--rack", rack.address, "--hosts-per-machine", str(HOSTS), "--runs", str(file.parent / "rack"))
    return rack.start_driver(
        "-m", "wanbed", "run", str(file), *where, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def main(dilation: float, chosen: Collection[str]) -> int:
    """Run all, or only the ``chosen`` variants and latencies, print the table, and return the exit status."""
    names = {each["name"] for each in DOCUMENT["variants"]}
    variants = [each for each in DOCUMENT["variants"] if each["name"] in (names & {*chosen} or names)]
    latencies = [each for each in DOCUMENT["sweep"][LATENCY] if each in chosen] or DOCUMENT["sweep"][LATENCY]
    changes = {"variants": variants, "sweep": {LATENCY: latencies}, "dilation": dilation}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.yaml"
        file.write_text(json.dumps({**DOCUMENT, **changes}))
        with guest_cluster(*nodes_of(DATACENTERS), memory_mib=2048) as cluster:
            try:
                rack = trials_of(over_guests(cluster, file), "rack")
            except RuntimeError:
                print(cluster.logs(), flush=True)
                raise
        drivers = {what: on_one_machine(file, what.replace(" ", "-")) for what in ("one machine", "one machine again")}
        with ThreadPoolExecutor() as threads:
            first, again = threads.map(trials_of, drivers.values(), drivers)
    print(f"dilation {dilation:g}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("variant   latency    rack s   one machine s  it differs from itself  rack differs  cores: one, again, guest")
    outside = 0
    for (latency, variant), there in rack.items():
        one, other = first[latency, variant], again[latency, variant]
        here_s = mean((one.iteration_time_s, other.iteration_time_s))
        own, differs = other.iteration_time_s / one.iteration_time_s - 1, there.iteration_time_s / here_s - 1
        outside += abs(own) <= AGREEMENT and abs(differs) > TOLERANCE
        print(
            f"{variant:<9} {latency:>7} {there.iteration_time_s:9.3f} {here_s:15.3f} {own:+23.1%} {differs:+13.1%}  "
            f"{one.load_text:>11}, {other.load_text}, {there.load_text}"
        )
    return 1 if outside else 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(f"{sys.argv[0]}: it plays machines by guests: call it as root")
    sys.exit(main(float(sys.argv[1]) if sys.argv[1:] else DILATION, sys.argv[2:]))
