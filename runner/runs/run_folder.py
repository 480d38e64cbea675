"""Choose the folder that a run writes to: a new one, or that of a run that was cut off."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ground.strict_model import InputError
from results.records.run_store import RunError, RunStore
from runner.resolve.experiment import Experiment
from runner.runs.manifest import gather_manifest

FEW = 2
"""The most parts at a time: memory is planned for so many."""


def begin_run(experiment: Experiment, root: Path, facts: Mapping[str, Any]) -> RunStore:
    """Make a run's folder below ``root``, with everything in its manifest that is known before it starts.

    Raises InputError where nothing can be written there.
    """
    manifest = {**gather_manifest(experiment), **facts}
    try:
        return RunStore.create(root, experiment.name, manifest, experiment.config_hash)
    except OSError as fault:
        raise InputError(f"--runs: {root}: cannot be written to ({fault.strerror}), give another folder") from None


def check_runs_folder(root: Path) -> None:
    """Raise InputError if runs cannot be written below ``root``; creates nothing."""
    there = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"--runs: {there} is no folder, give another place for runs")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"--runs: {there} may not be written to, give another place for runs")


def resume_run(experiment: Experiment, root: Path) -> RunStore:
    """Return the latest unfinished run of this very configuration below ``root``; the latest finished one if all are.

    Raises InputError if there is none.
    """
    found: list[RunStore] = []
    for folder in root.iterdir() if root.is_dir() else []:
        try:
            store = RunStore.open(folder)
        except RunError:
            continue
        if store.manifest.get("config_hash") == experiment.config_hash:
            found.append(store)
    if not found:
        raise InputError(f"--resume: {root} holds no run of this configuration, leave --resume out to start one")
    return max(found, key=lambda store: (not store.manifest["complete"], store.manifest["created"], store.path.name))


def latest_run(experiment: Experiment, runs: Path) -> RunStore | None:
    """Return the run of that configuration below ``runs``, None if none was begun."""
    try:
        return resume_run(experiment, runs)
    except (InputError, RunError):
        return None


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Keep every other process from continuing the same run. Raises InputError if one is at it already."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--resume: {path} is being written by another process, let it end") from None
        yield
    finally:
        os.close(folder)
