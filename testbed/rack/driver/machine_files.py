"""Copy files of processes between the driver and machines: what they write comes here, and goes to other machines.

What users' programs have written in the copies of files that machines were sent comes here too, up to a size.
"""

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from wanbed.testbed.rack.driver.leasing import naming
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine_handle import FilePiece

_PIECE_BYTES = 8 * 2**20
"""The most that one message has: a program may print much more, and a checkpoint is larger."""


class FilesOnMachines:
    """The folder ``below`` of the driver's ``folder``, and the one of the same path below each machine's lease folder.

    Names and patterns are relative to it. ``apart_from`` has the sizes of files that stay as they are here, by their
    paths below ``folder``. Every method raises MachineLostError if a machine has gone.
    """

    def __init__(
        self,
        machines: Collection[RackMachine],
        folder: Path,
        below: str = "",
        *,
        apart_from: Mapping[str, int] | None = None,
    ) -> None:
        self._machines = list(machines)
        self._folder = folder
        self._below = PurePosixPath(below)
        self._known_bytes = {machine.name: dict(apart_from or {}) for machine in self._machines}

    def look(self, patterns: Sequence[str]) -> None:
        """Add here what files that match have got since the last look."""
        asked, matching = self._machines, self._matching(patterns)
        while asked:
            pending = [
                (machine, machine.start_call("read_files", matching, self._known_bytes[machine.name], _PIECE_BYTES))
                for machine in asked
            ]
            asked = []
            for machine, each in pending:
                with naming(machine.name):
                    pieces = each.result()
                for name, piece in pieces.items():
                    self._add(machine, name, piece)
                if sum(len(piece.content) for piece in pieces.values()) >= _PIECE_BYTES:
                    asked.append(machine)

    def take(self, patterns: Sequence[str]) -> None:
        """Add here what files that match have got since the last look, and remove them on the machines."""
        self.look(patterns)
        self._remove(patterns)

    def names(self, pattern: str) -> set[str]:
        """Return the files that match, like ``after-*/stage-*``, of any machine. Nothing is copied."""
        return {name for machine in self._machines for name in self._names_on(machine, pattern)}

    def spread(self, names: Iterable[str]) -> None:
        """Copy files, each of which a machine has, here and to the machines that lack them."""
        wanted = list(names)
        for name in wanted:
            self._here(name).parent.mkdir(parents=True, exist_ok=True)
        held = {
            machine.name: {name for each in wanted for name in self._names_on(machine, each)}
            for machine in self._machines
        }
        for name in wanted:
            owner = next(machine for machine in self._machines if name in held[machine.name])
            FilesOnMachines([owner], self._folder, str(self._below)).look([name])
            for machine in self._machines:
                if name not in held[machine.name]:
                    self._send(machine, name)

    def remove(self, pattern: str) -> None:
        """Remove the files that match on every machine."""
        self._remove([pattern])

    def _remove(self, patterns: Sequence[str]) -> None:
        for machine in self._machines:
            with naming(machine.name):
                machine.call("remove_files", self._matching(patterns))

    def _here(self, name: str) -> Path:
        return self._folder / self._below / name

    def _matching(self, patterns: Sequence[str]) -> list[str]:
        return [str(self._below / pattern) for pattern in patterns]

    def _names_on(self, machine: RackMachine, pattern: str) -> set[str]:
        with naming(machine.name):
            found = machine.call("read_files", self._matching([pattern]), {}, 0)
        return {str(PurePosixPath(name).relative_to(self._below)) for name in found}

    def _send(self, machine: RackMachine, name: str) -> None:
        (there,) = self._matching([name])
        with self._here(name).open("rb") as file, naming(machine.name):
            machine.call("append_file", there, file.read(_PIECE_BYTES))
            while piece := file.read(_PIECE_BYTES):
                machine.call("append_file", there, piece)

    def _add(self, machine: RackMachine, name: str, piece: FilePiece) -> None:
        known, path = self._known_bytes[machine.name], self._folder / name
        offset = max(known.get(name, 0), 0)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with closing(os.fdopen(descriptor, "wb", buffering=0)) as file:
            file.seek(offset)
            file.write(piece.content)
        known[name] = offset + len(piece.content)
        # By this machine's clocks: what is compared was written on several.
        modified_ns = piece.modified_ns - machine.clock.ahead_ns + time.time_ns() - time.monotonic_ns()
        os.utime(path, ns=(modified_ns, modified_ns))


_MOST_FILES = 1000
_MOST_NAMED = 20


@dataclass
class Written:
    """The files of one trial that are here, by their names in its output, and by machine those that are not."""

    files: dict[str, Path] = field(default_factory=dict)
    left: dict[str, dict[str, int]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return how many files came back, and which did not, with their sizes, in plain JSON types."""
        return {
            "files": len(self.files),
            "not_brought_back": {
                machine: {
                    "files": len(sizes),
                    "bytes": sum(sizes.values()),
                    "first": dict([*sizes.items()][:_MOST_NAMED]),
                }
                for machine, sizes in self.left.items()
            },
        }


def fetched(
    machines: Collection[RackMachine], roots: Sequence[Path], folder: Path, name: str, most_bytes: int
) -> Written:
    """Fetch what programs have written since the last call, below ``folder``.

    ``roots`` are the driver's folders of which machines have copies. A file is called ``name/MACHINE/PATH``, where the
    path is the one in its root. Of each machine ``most_bytes`` come at most, the smallest files first. Raise
    MachineLostError if a machine has gone.
    """
    written = Written()
    for machine in machines:
        with naming(machine.name):
            sizes: Mapping[str, int] = machine.call("written_files")
            room, count = most_bytes, 0
            for place, size in sorted(sizes.items(), key=lambda each: (each[1], each[0])):
                if size > room or count == _MOST_FILES:
                    written.left.setdefault(machine.name, {})[place] = size
                    continue
                room, count = room - size, count + 1
                own = f"{name}/{machine.name}/{_below_root(place, roots)}"
                _fetch(machine, place, folder / own, size)
                written.files[own] = folder / own
    return written


def _fetch(machine: RackMachine, place: str, path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        # What is written while it is read would have no end.
        while file.tell() < size:
            piece = machine.call("read_written", place, file.tell(), min(_PIECE_BYTES, size - file.tell()))
            if not piece:
                return
            file.write(piece)


def _below_root(place: str, roots: Sequence[Path]) -> PurePosixPath:
    """Return where a file is below its root; behind the root's name if there are several of them."""
    number, *parts = PurePosixPath(place).parts
    below = PurePosixPath(*parts)
    return below if len(roots) == 1 else PurePosixPath(f"{number}-{roots[int(number)].name}") / below
