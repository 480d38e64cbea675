"""Read an experiment; where it leaves places to ``auto``, the planner chooses them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.experiment.sweep_points import read_experiment
from runner.planner.planning_task import planned_places
from runner.resolve.experiment import Experiment, resolve_experiment


def load_experiment(
    path: Path, overrides: Sequence[str] = (), *, engine: str | None = None, trains: bool = True
) -> Experiment:
    """Read an experiment's file, apply ``overrides`` (each a ``path=value``) and resolve every cell.

    ``engine`` stands in place of the file's, whatever that is; None leaves it. A topology given as a path, and a
    profile given as one, are read relative to the experiment's file. ``name`` defaults to the file's name without its
    ending. ``trains`` is False where the experiment is read for its network alone. Reads files and creates nothing.

    Raises InputError: one line with file, field and remedy.
    """
    document, source = read_experiment(path, overrides)
    asked = document if engine is None else {**document, "engine": engine}
    return parse_experiment(asked, source, path.parent, trains=trains)


def parse_experiment(document: Mapping[str, Any], source: str, directory: Path, *, trains: bool = True) -> Experiment:
    """Resolve an experiment from its document, as ``runner.resolve.experiment.resolve_experiment`` does."""
    return resolve_experiment(document, source, directory, planned_places, trains=trains)
