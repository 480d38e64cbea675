"""The ledger of attempts: a line for each, so that a list of them is gone through over days."""

import csv
import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tests.reliability.kills.attempts import Verdict
from tests.reliability.kills.disturbances import Disturbance

LEDGER = Path(__file__).with_name("ledger.csv")
_SAID = {True: "yes", False: "no", None: ""}


@dataclass(frozen=True)
class Entry:
    """A line of the ledger, as text: which attempt at which revision, and what followed."""

    seed: str
    number: str
    revision: str
    scene: str
    kind: str
    whom: str
    share: str
    in_time: str
    status: str
    left: str
    loads: str
    again: str
    equal: str
    wrong: str

    @classmethod
    def of(cls, seed: int, disturbance: Disturbance, verdict: Verdict, revision: str) -> "Entry":
        """Return the line of an attempt."""
        return cls(
            str(seed),
            str(disturbance.number),
            revision,
            disturbance.scene,
            disturbance.kind,
            disturbance.whom,
            f"{disturbance.share:.3f}",
            _SAID[verdict.in_time],
            str(verdict.status),
            str(verdict.left),
            _SAID[verdict.loads],
            _SAID[verdict.again],
            _SAID[verdict.equal],
            "; ".join(" ".join(text.split()) for text in verdict.wrong)[:400],
        )


def read_entries(file: Path) -> list[Entry]:
    """Return the ledger's lines in the order of numbers; of an attempt that was repeated the last one counts."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        by_number = {(int(row["seed"]), int(row["number"])): Entry(**row) for row in csv.DictReader(lines)}
    return [by_number[key] for key in sorted(by_number)]


def add_entry(entry: Entry, file: Path) -> None:
    """Append a line to the ledger. Several processes may do so."""
    with file.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        if not lines.tell():
            writer.writerow(field.name for field in fields(Entry))
        writer.writerow(astuple(entry))


def numbers_to_try(entries: Sequence[Entry], seed: int, first: int, count: int) -> list[int]:
    """Return the next numbers of a seed, from ``first`` on, that the ledger does not have."""
    tried = {int(entry.number) for entry in entries if entry.seed == str(seed)}
    return list(itertools.islice((number for number in itertools.count(first) if number not in tried), count))
