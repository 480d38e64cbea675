"""Translate the configuration of a process, a JSON document, for the machine that it runs on.

The driver writes it as for this machine: with paths below its own folder, on its own clock, with itself as the parent.
What a program of a user's is called with is written for its machine already, but for paths below the driver's folder.
"""

import json
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


class Translation:
    """Configurations as processes at ``place`` need them.

    ``files`` are those that go to the lease's folder, by their paths there: the configurations, and what they name and
    the machine does not have yet. ``inputs`` are the inputs that it has, to which those in ``files`` are added.
    """

    def __init__(self, place: MachinePlace, inputs: set[str]) -> None:
        self.files: dict[str, bytes] = {}
        self._place = place
        self._inputs = inputs

    def add(self, configuration: Path) -> None:
        """Add a configuration below the driver's folder, and those that its command hands on."""
        content = json.dumps(self.translated(json.loads(configuration.read_bytes())), indent=1)
        self.files[str(configuration.relative_to(self._place.driver_folder))] = content.encode()

    def translated(self, document: Any) -> Any:
        """Return a document as the machine's process needs it, and add the files that it names."""
        if isinstance(document, dict):
            return {name: self._field(name, value) for name, value in document.items()}
        if isinstance(document, list):
            return [self.translated(value) for value in document]
        if isinstance(document, str) and document.startswith("/"):
            return self._path(Path(document), document)
        return document

    def _field(self, name: str, value: Any) -> Any:
        if name == EPOCH and isinstance(value, int):
            return value + self._place.ahead_ns
        if name == PARENT and isinstance(value, int):
            return self._place.parent_pid
        if name == ENVIRONMENT:
            return value
        if name == COMMAND and isinstance(value, list):
            return [self._word(word) for word in value]
        return self.translated(value)

    def _word(self, word: str) -> str:
        path = Path(word)
        if not path.is_relative_to(self._place.driver_folder):
            return word
        if path.is_file():
            self.add(path)
        return self._own(path)

    def _path(self, path: Path, text: str) -> str:
        if path.is_relative_to(self._place.driver_folder):
            return self._own(path)
        if not path.is_file():
            return text
        place = input_path(path)
        if place not in self._inputs:
            self.files[place] = path.read_bytes()
            self._inputs.add(place)
        return f"{self._place.folder}/{place}"

    def _own(self, path: Path) -> str:
        """Return the machine's path for one below the driver's folder."""
        return f"{self._place.folder}/{path.relative_to(self._place.driver_folder)}"


def input_path(path: Path) -> str:
    """Return where a file of the driver is below the lease's folder."""
    return f"{INPUTS}/{sha256(str(path).encode()).hexdigest()[:12]}-{path.name}"
