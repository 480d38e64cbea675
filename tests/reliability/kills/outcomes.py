"""Read what a command has produced, so that a disturbed and repeated one can be compared with an undisturbed one."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from math import isclose
from pathlib import Path

from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.results.reading.summary import summary_rows
from wanbed.results.records.run_store import MANIFEST

DISK = "disk"
"""A file system of its own in a scene's folder."""
OUT = f"{DISK}/out"
"""The folder that commands of scenes write to."""
Outcome = Mapping[str, float | str]
Reading = Callable[[Path, str], Outcome]
"""A function of a scene's folder and of what its command printed."""
_SAME = 1e-3
"""The relative difference of times that virtual time promises: docs/virtual-time.md."""


def same(one: Outcome, other: Outcome) -> bool:
    """Return whether texts are equal, and numbers equal within what virtual time promises."""
    return one.keys() == other.keys() and all(_same_value(value, other[name]) for name, value in one.items())


def _same_value(one: float | str, other: float | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return isclose(one, other, rel_tol=_SAME)


def printed_text(_: Path, printed: str) -> Outcome:
    """Return the text that was printed."""
    return {"printed": printed}


def printed_numbers(_: Path, printed: str) -> Outcome:
    """Return every value of the JSON document that was printed, by its place in it."""
    return dict(_values(json.loads(printed), ""))


def _values(document: object, place: str) -> Iterator[tuple[str, float | str]]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _values(value, f"{place}.{name}")
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from _values(value, f"{place}.{number}")
    else:
        yield place, float(document) if isinstance(document, int | float) else str(document)


def written_files(folder: Path, _: str) -> Outcome:
    """Return a hash of each file that was written, by its path."""
    return _hashes(folder / OUT)


def simulated_trials(folder: Path, _: str) -> Outcome:
    """Return a hash of each file of the trials of the complete run."""
    return _hashes(complete_run(folder) / "trials")


def _hashes(folder: Path) -> Outcome:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def iteration_times(folder: Path, _: str) -> Outcome:
    """Return the iteration time of each trial of the complete run."""
    rows = summary_rows(load(complete_run(folder)).summary)
    return {f"{row['sweep_point']} {row['variant']} {row['repeat']}": row["iteration_time_s"] for row in rows}


def runs_of(folder: Path) -> list[Run]:
    """Load every run in a scene's folder. A folder without a manifest is none: its run ended before it began."""
    return [load(path.parent) for path in sorted((folder / OUT).glob(f"*/{MANIFEST}"))]


def complete_run(folder: Path) -> Path:
    """Return the folder of the latest complete run."""
    return max(run.path for run in runs_of(folder) if run.complete)
