"""Check the folder of a run that ``--resume`` continues, before the first trial runs."""

import os
from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.results.records.run_store import TRIAL_FACTS, RunStore
from wanbed.runner.resolve.experiment import Experiment


def check_same_substrate(store: RunStore, substrate: str) -> None:
    """Raise InputError if the run's network was carried by another substrate before: its trials would not compare."""
    before = (store.manifest.get("substrate") or {}).get("name", substrate)
    if before != substrate:
        raise InputError(
            f"--resume: {store.path}: its network was carried by the substrate {before}, and now would be by "
            f"{substrate}: give --substrate {before}, or leave --resume out"
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
