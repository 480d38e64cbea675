"""Judge what a command printed and wrote for an input: a clear line, a right result, or a fault."""

import os
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wanbed.runner.runs.faults import BAD_INPUT, DONE, NO_DATA, NOT_COMPARABLE, OUTSIDE_TOLERANCE

LONGEST_LINE = 1000
_STATUSES = (DONE, OUTSIDE_TOLERANCE, BAD_INPUT, NOT_COMPARABLE, NO_DATA)
_OWN_FAULT, _TRACEBACK = "fault of wanbed itself", "Traceback (most recent call last)"
_SHOWN_RAW = (".html", ".csv", ".md", ".txt", ".svg")
_ISOLATES = ("\u2068", "\u2069")
"""wanbed's own, around names that are written from right to left."""
_LAYOUT = "\n\t"


class Outcome(StrEnum):
    """The end of an input."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAULT = "fault"


@dataclass(frozen=True)
class Ended:
    """The end of a command: its exit status, the text that it printed, and an error that left it."""

    status: int
    output: str = ""
    errors: str = ""
    fault: BaseException | None = None


def faults_of(ended: Ended, folder: Path, *, names_its_file: bool) -> list[str]:
    """Return what is wrong with the end of a command that read the input in ``folder``, [] for a right one."""
    found = []
    if ended.fault is not None:
        found.append(f"{type(ended.fault).__name__} left the command: {ended.fault}")
    if ended.status not in _STATUSES or _OWN_FAULT in ended.errors or _TRACEBACK in ended.errors:
        found.append(f"status {ended.status}")
    if ended.status == BAD_INPUT:
        found += _faults_of_refusal(ended.errors, folder if names_its_file else None)
    for name, text in (("standard output", ended.output), ("standard error", ended.errors)):
        found += [f"{name} has {raw} raw" for raw in raw_characters(text)]
    for path in sorted(folder.parent.rglob("*")):
        if path.suffix in _SHOWN_RAW and path.is_file() and not path.is_relative_to(folder):
            text = path.read_text(encoding="utf-8")
            found += [f"{path.name} has {raw} raw" for raw in raw_characters(text)]
    return found


def raw_characters(text: str) -> list[str]:
    """Return the names of characters in a text that change what is shown around them."""
    return [
        f"U+{ord(each):04X}"
        for each in sorted(set(text))
        if each not in _LAYOUT
        and each not in _ISOLATES
        and unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]


def _faults_of_refusal(errors: str, folder: Path | None) -> list[str]:
    lines = [line for line in errors.splitlines() if line.startswith("wanbed: ")]
    found = [f"a line of {len(line)} characters" for line in lines if len(line) > LONGEST_LINE]
    if not lines and "Error: " not in errors:
        found.append("no line says why")
    if (
        lines
        and folder is not None
        and not any(
            name in errors for path in (folder, *folder.rglob("*")) for name in (path.name, os.path.realpath(path))
        )
    ):
        found.append("no line names a file")
    return found
