"""Begin the folder of a run, or find the one that ``--resume`` continues and check it; lock it while it is written."""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError
from wanbed.results.reading.run_documents import check_manifest
from wanbed.results.records.run_store import MANIFEST, TRIAL_FACTS, RunError, RunStore
from wanbed.results.records.schema import SCHEMA_VERSION
from wanbed.results.records.schema_upgrade import SCHEMA_VERSION_KEY, upgraded_document
from wanbed.results.text import count_text
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.manifest import gather_manifest

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


def resumed(experiment: Experiment, runs: Path, log: Log) -> RunStore | None:
    """Return the run that goes on, or that has all its trials already; None if a new one has to start.

    A complete run that has lost a trial since goes on, and is marked incomplete.
    Log a line if nothing goes on. Raise InputError if the folder of the run that goes on is damaged.
    """
    store = latest_run(experiment, runs)
    if store is None:
        log(f"--resume: {runs} holds no run of this file as it is now: a new one starts")
    elif not store.manifest["complete"]:
        check_continuable(experiment, store)
    elif missing := store.missing_trials():
        check_continuable(experiment, store)
        gone = count_text(len(missing), "trial")
        log(f"--resume: {store.path} was complete, and has lost {gone} since, which will run again")
        store.update_manifest({"complete": False})
    else:
        log(f"--resume: {store.path} is complete already, nothing is run again; without --resume a new one starts")
    return store


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


def check_continuable(experiment: Experiment, store: RunStore) -> None:
    """Raise InputError if the run's folder has what would lead outside it, or what only looks like a finished trial."""
    for parent, folders, files in os.walk(store.path):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise InputError(f"--resume: {path}: a link inside a run's folder: put what it leads to in its place")
    for trial in experiment.trials():
        path = store.trial_path(*trial)
        for folder in (path.parents[2], path.parents[1], path.parent, path):
            if folder.exists() and not folder.is_dir():
                raise InputError(f"--resume: {folder}: a file where a folder of trials belongs: remove it")
        if path.exists() and not store.has_trial(*trial):
            raise InputError(
                f"--resume: {path}: not a whole trial, it lacks {TRIAL_FACTS} or its spans: remove this folder, and "
                "the trial runs again"
            )


def check_same_substrate(store: RunStore, substrate: str) -> None:
    """Raise InputError if the run's network was carried by another substrate before: its trials would not compare."""
    before = (store.manifest.get("substrate") or {}).get("name", substrate)
    if before != substrate:
        raise InputError(
            f"--resume: {store.path}: its network was carried by the substrate {before}, and now would be by "
            f"{substrate}: give --substrate {before}, or leave --resume out"
        )


@contextmanager
def kept_trials(experiment: Experiment, store: RunStore) -> Iterator[None]:
    """Add a note to whatever ends the block early: how many trials the run keeps, and how to go on."""
    try:
        yield
    except BaseException as fault:
        trials = experiment.trials()
        finished = sum(store.has_trial(*trial) for trial in trials)
        kept = f"{store.path} keeps {finished} of {count_text(len(trials), 'trial')}"
        fault.add_note(f"{kept}: the same command with --resume goes on")
        raise


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
