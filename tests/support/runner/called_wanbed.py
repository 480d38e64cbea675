"""Call wanbed as scripts do, in this process: for tests of what a run finds, and not of what a command prints.

A command takes two seconds to start and as long for the report of a run. That it leaves the same run is shown by the
tests of commands.
"""

from pathlib import Path

import wanbed


def run_here(experiment: str, folder: Path) -> wanbed.Run:
    """Run an experiment, whose file is written into ``folder``, with what it leaves."""
    return wanbed.run(_written(experiment, folder), runs=folder / "run")


def simulate_here(experiment: str, folder: Path) -> wanbed.Run:
    """Simulate an experiment, whose file is written into ``folder``, with what it leaves."""
    return wanbed.simulate(_written(experiment, folder), runs=folder / "simulate", jobs=1)


def _written(experiment: str, folder: Path) -> Path:
    file = folder / "experiment.yaml"
    file.write_text(experiment, encoding="utf-8")
    return file
