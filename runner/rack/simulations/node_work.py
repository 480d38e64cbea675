"""The work of a node: simulate trials, and give back their files."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from wanbed.results.records.run_store import read_trial_files
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial, simulate_into
from wanbed.runner.simulator.simulation import Simulate


@dataclass(frozen=True)
class SimulatedTrials:
    """The files of the trials that were simulated, in their order, and the failure that ended it, None without one."""

    files: Sequence[Mapping[str, bytes]]
    fault: Exception | None
    elapsed_s: float


def simulate_trials(trials: Sequence[SimulatedTrial], simulate: Simulate) -> SimulatedTrials:
    """Simulate trials one after the other until the first foreseen failure."""
    started_s = time.perf_counter()
    files: list[Mapping[str, bytes]] = []
    fault: Exception | None = None
    with TemporaryDirectory() as folder:
        for trial in trials:
            fault = simulate_into(Path(folder), trial, simulate)
            if fault is not None:
                break
            files.append(read_trial_files(Path(folder), trial.id))
    return SimulatedTrials(files, fault, time.perf_counter() - started_s)
