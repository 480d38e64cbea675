"""Find the runs in a folder, describe each in a line, and remove them. A damaged run is one of the list."""

import json
import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from wanbed.ground.errors import InputError
from wanbed.ground.files import PARTIAL
from wanbed.results.reading.run_documents import read_manifest
from wanbed.results.records.run_store import MANIFEST, SUMMARY_FILE, TRIAL_FACTS, RunError
from wanbed.results.records.trial_id import planned_trials
from wanbed.runner.runs.run_folder import exclusively, is_being_written

State = Literal["complete", "unfinished", "running", "damaged"]


@dataclass(frozen=True)
class StoredRun:
    """A run as its folder tells. What a damaged manifest does not tell is None; ``damage`` says what is wrong."""

    path: Path
    size_bytes: int
    state: State
    damage: str | None = None
    experiment: str | None = None
    created: datetime | None = None
    engine: str | None = None
    clock: str | None = None
    finished_trials: int | None = None
    planned_trials: int | None = None
    iteration_times_s: tuple[float, float] | None = None
    """The shortest and the longest iteration time of a trial, None before the run has a summary."""


def stored_runs(folder: Path) -> list[StoredRun]:
    """Return the runs directly in a folder, the newest first, those that are damaged last."""
    runs = [stored_run(path) for path in folder.iterdir() if is_run(path)] if folder.is_dir() else []
    dated = [(run.created.timestamp(), run.path.name, run) for run in runs if run.created is not None]
    dated.sort(key=itemgetter(0, 1), reverse=True)
    undated = sorted((run for run in runs if run.created is None), key=lambda run: run.path)
    return [*(run for _, _, run in dated), *undated]


def is_run(path: Path) -> bool:
    """Return whether a folder, not a link to one, holds a run's manifest."""
    return not path.is_symlink() and (path / MANIFEST).is_file()


def stored_run(path: Path) -> StoredRun:
    """Describe the run in a folder that is one."""
    size_bytes = _size_bytes(path)
    try:
        manifest = read_manifest(path)
    except RunError as fault:
        return StoredRun(path, size_bytes, "damaged", str(fault).removeprefix(f"{path}{os.sep}"))
    try:
        created = datetime.fromisoformat(manifest["created"]).astimezone()
    except (ValueError, OverflowError) as fault:
        return StoredRun(path, size_bytes, "damaged", f"{MANIFEST}: created: {fault}")
    planned = len(planned_trials(manifest))
    finished = sum(file.parent.suffix != PARTIAL for file in path.glob(f"trials/*/*/repeat-*/{TRIAL_FACTS}"))
    complete = manifest.get("complete") is True and finished >= planned
    return StoredRun(
        path,
        size_bytes,
        "complete" if complete else "running" if is_being_written(path) else "unfinished",
        None,
        manifest.get("name"),
        created,
        manifest.get("engine"),
        manifest.get("clock"),
        finished,
        planned or None,
        _iteration_times_s(path),
    )


def _size_bytes(path: Path) -> int:
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.lstat(file).st_size for file in files if os.path.lexists(file))


def _iteration_times_s(path: Path) -> tuple[float, float] | None:
    file = path / SUMMARY_FILE
    try:
        written = pq.read_table(file, columns=["iteration_time_s"]).column(0).to_pylist() if file.is_file() else []
    except (OSError, pa.ArrowException, IndexError):
        return None
    times_s = [time_s for time_s in written if time_s is not None]
    return (min(times_s), max(times_s)) if times_s else None


def run_at(text: str, folder: Path) -> Path:
    """Return the folder of the run that is given by its path, or by its name in ``folder``.

    Raise InputError if it is no run.
    """
    named, given = folder / text, Path(text)
    path = named if given.name == text and os.path.lexists(named) else given
    if path.is_symlink():
        raise InputError(f"{path}: a link, not a run's folder: give the folder that it leads to")
    if not path.is_dir():
        raise InputError(f"{path}: no such run: give its name in {folder}, or its path")
    if not is_run(path):
        raise InputError(f"{path}: not a run's folder, it has no {MANIFEST}: wanbed runs lists runs")
    return path


def check_removable(path: Path) -> None:
    """Raise InputError if a run is being written, or its manifest does not tell that the folder is a run."""
    try:
        written = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        known = isinstance(written, dict) and "config_hash" in written
    except (OSError, ValueError, RecursionError):
        known = False
    if not known:
        raise InputError(
            f"{path / MANIFEST}: no run's manifest, or damaged: remove the folder yourself if it was a run"
        )
    if is_being_written(path):
        raise InputError(f"{path}: a process is writing this run: let it end first")


def remove_run(path: Path) -> None:
    """Remove the folder of a run that can be removed. Links in it are removed, not what they lead to."""
    check_removable(path)
    folder = path.resolve()
    try:
        with exclusively(folder):
            shutil.rmtree(folder)
    except OSError as fault:
        raise InputError(f"{fault.filename or path}: cannot be removed ({fault.strerror}): try with sudo") from None
