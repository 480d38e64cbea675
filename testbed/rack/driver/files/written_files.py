"""Bring back what users' programs have written on machines, in the copies of files that those were sent."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from wanbed.testbed.rack.driver.inventory import naming
from wanbed.testbed.rack.driver.rack_machine import RackMachine

_PIECE_BYTES = 8 * 2**20
"""The most that one answer of a machine has."""
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
