"""The eight parts of the soak, the packages that each belongs to, and the ledger of which ran when.

A part has the tests that are marked ``soak``, and the property tests with examples drawn anew, of its own folders and
of those that mirror its packages.
"""

import csv
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
LEDGER = Path(__file__).with_name("ledger.csv")
PASSED, CUT_OFF = "passed", "cut off"


@dataclass(frozen=True)
class Part:
    """One eighth of the soak: packages of the project, and folders of tests besides those that mirror them."""

    name: str
    packages: tuple[str, ...]
    tests: tuple[str, ...]


PARTS = (
    Part("links", ("ground", "netem_profiles", "testbed/network", "testbed/kernel"), ("tests/system/links",)),
    Part("hosts", ("testbed",), ("tests/system/hosts", "tests/system/virtual_time")),
    Part("training", ("workloads",), ("tests/system/training", "tests/system/transport")),
    Part("programs", ("workloads/user_programs",), ("tests/system/programs",)),
    Part(
        "simulator",
        ("flow", *(f"runner/{package}" for package in ("simulator", "planner", "resolve", "bound", "experiment"))),
        (),
    ),
    Part("commands", ("runner", "results", "studies", "wanbed"), ("tests",)),
    Part("rack", ("testbed/rack",), ("tests/system/rack",)),
    Part("ray", ("runner/rack_runs",), ("tests/system/rack/ray",)),
)


@dataclass(frozen=True)
class Entry:
    """A line of the ledger: when a part ran, at which revision, and whether it passed or was cut off."""

    date: str
    revision: str
    part: str
    outcome: str


def part_of(path: str) -> Part | None:
    """Return the part that a file of the project or of its tests belongs to: the one that names the nearest folder."""
    named = {folder: part for part in PARTS for folder in _folders(part)}
    return next((named[str(folder)] for folder in PurePosixPath(path).parents if str(folder) in named), None)


def files_of(part: Part, root: Path = ROOT) -> list[str]:
    """Return the files of a part's tests."""
    files = sorted(file.relative_to(root).as_posix() for file in root.glob("tests/**/test_*.py"))
    return [file for file in files if part_of(file) == part]


def _folders(part: Part) -> tuple[str, ...]:
    return (*part.packages, *(f"tests/{package}" for package in part.packages), *part.tests)


def read_ledger(file: Path = LEDGER) -> list[Entry]:
    """Return the ledger's lines, the oldest first."""
    with file.open(newline="", encoding="utf-8") as lines:
        return [Entry(**row) for row in csv.DictReader(lines)]


def add_entry(entry: Entry, file: Path = LEDGER) -> None:
    """Append a line to the ledger."""
    with file.open("a", newline="", encoding="utf-8") as lines:
        csv.writer(lines, lineterminator="\n").writerow(astuple(entry))


def due_parts(entries: Sequence[Entry], changed: Iterable[str]) -> list[Part]:
    """Return the parts that are due: those in ``changed``, then of the others the one that ran least recently."""
    ran_at = {entry.part: number for number, entry in enumerate(entries)}
    by_age = sorted(PARTS, key=lambda part: ran_at.get(part.name, -1))
    names = set(changed)
    return [part for part in by_age if part.name in names] + [part for part in by_age if part.name not in names][:1]


def changed_parts(entries: Sequence[Entry]) -> set[str]:
    """Return the parts whose packages or tests have changed since they passed, or never did in this history."""
    passed_at = {entry.part: entry.revision for entry in entries if entry.outcome == PASSED}
    return {part.name for part in PARTS if _has_changed(part, passed_at.get(part.name))}


def _has_changed(part: Part, revision: str | None) -> bool:
    files = None if revision is None else _files_changed_since(revision)
    return files is None or any(part_of(file) == part for file in files)


@cache
def _files_changed_since(revision: str) -> list[str] | None:
    """Return the files that differ from a revision, uncommitted ones too; None if the history does not have it."""
    command = ["git", "diff", "--name-only", revision, "--"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def head_revision() -> str:
    """Return the revision that is checked out."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
