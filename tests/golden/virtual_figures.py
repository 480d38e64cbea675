"""Run two shipped experiments in virtual time, and take their iteration times."""

import math
from collections.abc import Iterator
from pathlib import Path

import wanbed
from tests.golden.simulated_bytes import EXPERIMENTS

NAMES = ("first", "diloco")
WITHIN = 0.001
"""How far one run may be from another, which docs/virtual-time.md promises."""


def virtual_figures(name: str, runs: Path) -> Iterator[tuple[str, float]]:
    """Yield the iteration time of each trial in seconds, by its name; of a single iteration, its makespan."""
    experiment = wanbed.Experiment.from_file(EXPERIMENTS / f"{name}.yaml", {"clock": "virtual"})
    run = wanbed.run(experiment, runs=runs)
    for row in run.summary.to_dict("records"):
        seconds = row["makespan_s"] if math.isnan(row["iteration_time_s"]) else row["iteration_time_s"]
        yield f"{name} {row['sweep_point']} {row['variant']}", seconds
