"""Run two shipped experiments in virtual time, and take their iteration times."""

from collections.abc import Iterator
from pathlib import Path

import wanbed
from tests.golden.simulated_bytes import EXPERIMENTS

NAMES = ("first", "diloco")
WITHIN = 0.001
"""How far one run may be from another, which docs/virtual-time.md promises."""


def virtual_figures(name: str, runs: Path) -> Iterator[tuple[str, float]]:
    """Yield the makespan of each trial in seconds, by its name."""
    experiment = wanbed.Experiment.from_file(EXPERIMENTS / f"{name}.yaml", {"clock": "virtual"})
    run = wanbed.run(experiment, runs=runs)
    for row in run.summary.to_dict("records"):
        yield f"{name} {row['sweep_point']} {row['variant']}", row["makespan_s"]
