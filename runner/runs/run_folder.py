"""Choose the folder that a run writes to: a new one, or that of an unfinished run."""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wanbed.ground.strict_model import InputError
from wanbed.results.reading.run_documents import check_manifest
from wanbed.results.records.run_store import MANIFEST, RunError, RunStore
from wanbed.results.records.schema import SCHEMA_VERSION
from wanbed.results.records.schema_upgrade import SCHEMA_VERSION_KEY, upgraded_document
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.recorded.manifest import gather_manifest

Log = Callable[[str], None]
"""A function that shows a line which is no result."""

DEFAULT_PARALLEL_RUNS = 2
"""The default number of runs at a time. The memory of the machine is assumed to be enough for this many."""


def begin_run(experiment: Experiment, root: Path, facts: Mapping[str, Any]) -> RunStore:
    """Create the folder of a run below ``root``, with a manifest of everything that is known before the run starts.

    ``facts`` are added to the manifest. Raise InputError if the folder cannot be written.
    """
    manifest = {**gather_manifest(experiment), **facts}
    try:
        return RunStore.create(root, experiment.name, manifest, experiment.config_hash)
    except OSError as fault:
        raise InputError(f"--runs: {root}: cannot be written to ({fault.strerror}), give another folder") from None


def check_runs_folder(root: Path) -> None:
    """Raise InputError if runs cannot be written below ``root``. Create nothing."""
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"--runs: {existing} is no folder, give another place for runs")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"--runs: {existing} may not be written to, give another place for runs")


def latest_run(experiment: Experiment, root: Path) -> RunStore | None:
    """Return the latest unfinished run of this exact configuration below ``root``, or the latest one if all finished.

    Return None if there is none. A folder without a whole manifest is no run, and one of an earlier schema version
    does not go on.
    """
    found: list[RunStore] = []
    for folder in root.iterdir() if root.is_dir() else []:
        try:
            store = RunStore.open(folder)
            same = store.manifest.get("config_hash") == experiment.config_hash
            # The same words of an earlier version's file need not mean the same.
            if same and store.manifest.get(SCHEMA_VERSION_KEY) == SCHEMA_VERSION:
                check_manifest(upgraded_document(store.manifest), folder / MANIFEST)
                found.append(store)
        except RunError:
            continue
    return max(
        found,
        key=lambda store: (not store.manifest["complete"], store.manifest["created"], store.path.name),
        default=None,
    )


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Lock the folder of a run against other processes. Raise InputError if another process holds the lock."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--resume: {path} is being written by another process, let it end") from None
        yield
    finally:
        os.close(folder)


def is_being_written(path: Path) -> bool:
    """Return whether another process holds the lock of a run's folder."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(folder)
    return False
