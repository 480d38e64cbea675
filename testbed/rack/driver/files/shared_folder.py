"""Have a folder on several machines as if they shared a disk: what one of them has, all can be given."""

from collections.abc import Collection, Iterable
from pathlib import Path

from wanbed.testbed.rack.driver.files.mirrored_files import MirroredFiles
from wanbed.testbed.rack.driver.inventory import naming
from wanbed.testbed.rack.driver.rack_machine import RackMachine

_PIECE_BYTES = 8 * 2**20
"""The most that one message to a machine has: a checkpoint may be much larger."""


class SharedFolder:
    """The copies on machines of the driver's ``folder``, which is ``below`` in each lease's folder."""

    def __init__(self, machines: Collection[RackMachine], folder: Path, below: str) -> None:
        self._machines = list(machines)
        self._folder = folder
        self._below = below
        self._root = folder.parents[len(Path(below).parts) - 1]

    def names(self, pattern: str) -> set[str]:
        """Return the files that match, like ``after-*/stage-*``, of any machine. Nothing is copied."""
        return {name for machine in self._machines for name in self._names_on(machine, pattern)}

    def spread(self, names: Iterable[str]) -> None:
        """Copy files of this folder, each of which a machine has, here and to the machines that lack them."""
        wanted = list(names)
        for name in wanted:
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        held = {
            machine.name: {name for each in wanted for name in self._names_on(machine, each)}
            for machine in self._machines
        }
        for name in wanted:
            owner = next(machine for machine in self._machines if name in held[machine.name])
            MirroredFiles([owner], self._root, self._below).look([name])
            for machine in self._machines:
                if name not in held[machine.name]:
                    self._send(machine, name)

    def remove(self, pattern: str) -> None:
        """Remove the files that match on every machine."""
        for machine in self._machines:
            with naming(machine.name):
                machine.call("remove_files", [f"{self._below}/{pattern}"])

    def _names_on(self, machine: RackMachine, pattern: str) -> set[str]:
        with naming(machine.name):
            found = machine.call("read_files", [f"{self._below}/{pattern}"], {}, 0)
        return {str(Path(name).relative_to(self._below)) for name in found}

    def _send(self, machine: RackMachine, name: str) -> None:
        with (self._folder / name).open("rb") as file, naming(machine.name):
            machine.call("write_files", {f"{self._below}/{name}": file.read(_PIECE_BYTES)})
            while piece := file.read(_PIECE_BYTES):
                machine.call("append_file", f"{self._below}/{name}", piece)
