"""Run checks with both engines, and compare what an iteration takes in virtual time with what is simulated."""

import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from studies.which_training.candidates import TriedSetting, candidates
from studies.which_training.grid import Grid
from studies.which_training.setting import Method, Wan
from studies.which_training.virtual_check.shrunk import VirtualCheck, checks, shrunk_profile
from wanbed.ground.files.atomic_write import write_whole
from wanbed.module_process import module_command
from wanbed.results import load
from wanbed.results.metrics import iteration_windows
from wanbed.results.reading.known_misses import known_misses_of
from wanbed.results.reading.run import Run
from wanbed.runner.cli.exit_status import fail
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.faults import NO_DATA
from wanbed.runner.runs.run_folder import latest_run

CHECKED = (Wan(10, 1_000_000_000),)
"""The WANs whose chosen settings are checked."""
_PROFILE = "a100-shrunk.json"
_SIMULATE, _EMULATE = "simulate", "emulate"


@dataclass(frozen=True)
class Checked:
    """The iteration time of one setting, in virtual time and simulated, and the kinds of misses it is marked with.

    ``known_misses`` are named as ``docs/known-misses.md`` names them.
    """

    wan: Wan
    method: Method
    label: str
    measured_s: float
    simulated_s: float
    known_misses: tuple[str, ...]

    @property
    def miss(self) -> float:
        """Simulated over measured, minus 1."""
        return self.simulated_s / self.measured_s - 1


def chosen_at(grid: Grid, wans: Iterable[Wan]) -> list[TriedSetting]:
    """Return the setting that was chosen for each method at each of these WANs."""
    return [
        next(each for each in candidates(method, wan) if each.label == grid.price(wan, method).label)
        for wan in wans
        for method in Method
    ]


def checked(grid: Grid, runs: Path, log: Callable[[str], None]) -> list[Checked]:
    """Check the chosen settings at ``CHECKED``, below ``runs``. What was finished before is not run again.

    End the process with one line if a run fails.
    """
    runs.mkdir(parents=True, exist_ok=True)
    write_whole(runs / _PROFILE, shrunk_profile())
    return [found for check in checks(chosen_at(grid, CHECKED)) for found in _compared(check, runs, log)]


def _compared(check: VirtualCheck, runs: Path, log: Callable[[str], None]) -> list[Checked]:
    simulated, measured = (_run(check, engine, runs, log) for engine in (_SIMULATE, _EMULATE))
    marks = _marks(simulated)
    simulated_s, measured_s = (mean_iterations_s(run, check.iterations) for run in (simulated, measured))
    return [
        Checked(
            check.wan,
            each.method,
            each.label,
            measured_s[each.method.value],
            simulated_s[each.method.value],
            marks.get(each.method.value, ()),
        )
        for each in check.chosen
    ]


def mean_iterations_s(run: Run, iterations: int) -> dict[str, float]:
    """Return by variant the mean seconds of an iteration, from the end of the first to the end of the last.

    Raise ValueError for a variant that lacks an iteration.
    """
    found: dict[str, float] = {}
    by_variant: Any = run.spans.groupby("variant", observed=True)
    for variant, spans in by_variant:
        ends_ns = iteration_windows(spans)["end_ns"]
        if len(ends_ns) != iterations:
            raise ValueError(f"{run.path}: {variant} has {len(ends_ns)} of {iterations} iterations")
        found[str(variant)] = (ends_ns.iloc[-1] - ends_ns.iloc[0]) / (iterations - 1) / 1e9
    return found


def _marks(run: Run) -> dict[str, tuple[str, ...]]:
    return {trial.variant: tuple(miss.name for miss in known_misses_of(trial.facts)) for trial in run.trials}


def _run(check: VirtualCheck, engine: str, runs: Path, log: Callable[[str], None]) -> Run:
    file = runs / f"{check.name}-{engine}.yaml"
    document = {**check.document(f"./{_PROFILE}"), "name": file.stem, "engine": engine}
    write_whole(file, yaml.safe_dump(document, sort_keys=False))
    experiment = load_experiment(file, [])
    store = latest_run(experiment, runs)
    if store is None or not store.manifest["complete"]:
        log(f"checked: {file.stem}")
        command = module_command("wanbed", "simulate" if engine == _SIMULATE else "run", str(file), "--runs", str(runs))
        resume = [] if store is None else ["--resume"]
        ended = subprocess.run([*command, *resume], check=False, env=os.environ, stdout=subprocess.DEVNULL)
        store = latest_run(experiment, runs)
        if store is None or not store.manifest["complete"]:
            fail(f"{file.stem}: wanbed ended with status {ended.returncode}: see its lines above", NO_DATA)
    return load(store.path)
