"""Start a Python module on a host of a machine: send what it is configured with, and bring back what it leaves.

The driver writes the configuration, a JSON document, as for this machine: with paths below its own folder, on its own
clock, with itself as the parent. It is translated for the machine. What a program of a user's is called with is written
for its machine already, but for paths below the driver's folder.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from wanbed.testbed.rack.driver.machine_files import FilesOnMachines
from wanbed.testbed.rack.driver.rack_machine import RackMachine, RemoteProcess
from wanbed.testbed.rack.machine_handle import ProgramOrder

EPOCH, PARENT = "epoch_ns", "parent_pid"
"""Fields of every process's configuration: the time that is 0 in its log, and the process whose end ends it."""

COMMAND, ENVIRONMENT = "command", "environment"
"""Fields of a user's program: its words, and variables. No file that they name goes along."""

_INPUTS = "inputs"
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
    return f"{_INPUTS}/{sha256(str(path).encode()).hexdigest()[:12]}-{path.name}"


def start_module_on(
    machine: RackMachine,
    host: str,
    module: str,
    arguments: list[str],
    output: int,
    *,
    folder: Path,
    environment: Mapping[str, str],
) -> RemoteProcess:
    """Run ``main(arguments)`` of a module on a host of ``machine``; ``folder`` is the driver's for the testbed.

    An argument that is a file below ``folder`` is a configuration: the machine gets it, translated, and the files that
    it names. When the process has ended, its output is written to the descriptor ``output``, and the files that it has
    left beside its configuration, named like it, are here where they are there.
    """
    configurations = [path for each in arguments if (path := Path(each)).is_relative_to(folder) and path.is_file()]
    place = MachinePlace(folder, machine.lease.folder, machine.lease.module_parent, machine.clock.ahead_ns)
    translation = Translation(place, machine.inputs)
    for path in configurations:
        translation.add(path)

    def relative(path: Path) -> str:
        return str(path.relative_to(folder))

    left = [relative(path.with_suffix(".*")) for path in configurations]
    program = ProgramOrder(
        module=module,
        arguments=tuple(relative(Path(each)) if Path(each) in configurations else each for each in arguments),
        environment=environment,
        files=translation.files,
    )
    # The caller closes its own.
    printed = os.fdopen(os.dup(output), "wb")
    number_of: list[int] = []

    def made(number: int) -> RemoteProcess:
        number_of.append(number)
        return RemoteProcess(number, machine)

    def bring_back(_: int) -> None:
        with printed:
            printed.write(machine.output(number_of[0], 0))
        sizes = {name: len(content) for name, content in translation.files.items()}
        FilesOnMachines([machine], folder, apart_from=sizes).take(left)

    return machine.start(host, program, made, bring_back)
