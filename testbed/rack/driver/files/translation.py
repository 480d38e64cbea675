"""Translate the configuration of a process, a JSON document, for the machine that it runs on.

The driver writes it as for this machine: with paths below its own folder, on its own clock, with itself as the parent.
What a program of a user's is called with is written for its machine already, but for paths below the driver's folder.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

EPOCH, PARENT = "epoch_ns", "parent_pid"
"""Fields of every process's configuration: the time that is 0 in its log, and the process whose end ends it."""

COMMAND, ENVIRONMENT = "command", "environment"
"""Fields of a user's program: its words, and variables. No file that they name goes along."""

INPUTS = "inputs"
"""The folder, below the lease's, of files that a configuration names and that the driver has elsewhere."""


@dataclass(frozen=True)
class MachinePlace:
    """The place of a process. Paths below ``driver_folder`` are the same below ``folder``, which is the machine's."""

    driver_folder: Path
    folder: str
    parent_pid: int
    ahead_ns: int
    """The lead of the machine's clock over the driver's."""


def translated(document: Any, place: MachinePlace) -> Any:
    """Return the document as the machine's process needs it. Files that it names elsewhere are then in ``INPUTS``."""
    if isinstance(document, dict):
        return {name: _field(name, value, place) for name, value in document.items()}
    if isinstance(document, list):
        return [translated(value, place) for value in document]
    if isinstance(document, str):
        return _text(document, place)
    return document


def _field(name: str, value: Any, place: MachinePlace) -> Any:
    if name == EPOCH and isinstance(value, int):
        return value + place.ahead_ns
    if name == PARENT and isinstance(value, int):
        return place.parent_pid
    if name == ENVIRONMENT:
        return value
    if name == COMMAND and isinstance(value, list):
        return [_own_path(word, place) for word in value]
    return translated(value, place)


def _text(text: str, place: MachinePlace) -> str:
    own = _own_path(text, place)
    if own != text or not text.startswith("/"):
        return own
    return f"{place.folder}/{input_path(Path(text))}" if Path(text).is_file() else text


def _own_path(text: str, place: MachinePlace) -> str:
    """Return the machine's path for one below the driver's folder, any other text as it is."""
    if not text.startswith("/") or not Path(text).is_relative_to(place.driver_folder):
        return text
    return f"{place.folder}/{Path(text).relative_to(place.driver_folder)}"


def named_configurations(document: Any, driver_folder: Path) -> Iterable[Path]:
    """Return the files below the driver's folder that a program is called with: a launcher hands them on."""
    for word in document.get(COMMAND, ()) if isinstance(document, dict) else ():
        if word.startswith("/") and Path(word).is_relative_to(driver_folder) and Path(word).is_file():
            yield Path(word)


def named_inputs(document: Any, driver_folder: Path) -> Iterable[Path]:
    """Return the files that a document names and that are not below the driver's folder."""
    if isinstance(document, dict | list):
        named = {**document, COMMAND: None, ENVIRONMENT: None} if isinstance(document, dict) else {}
        for part in named.values() if isinstance(document, dict) else document:
            yield from named_inputs(part, driver_folder)
    elif isinstance(document, str) and document.startswith("/"):
        path = Path(document)
        if not path.is_relative_to(driver_folder) and path.is_file():
            yield path


def input_path(path: Path) -> str:
    """Return where a file of the driver is below the lease's folder."""
    return f"{INPUTS}/{sha256(str(path).encode()).hexdigest()[:12]}-{path.name}"
