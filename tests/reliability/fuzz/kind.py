"""Define a kind of input: how a valid one is made, which of its files is damaged and how, and what reads it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.reliability.fuzz.mutations.of_files import replace_file

INPUT = "input"
"""The folder of an input, in a folder of its own for each number."""

FILE = "{file}"
"""Stands in commands for the path of the file that is damaged."""

Damage = Callable[[bytes, Random], bytes]
Command = Sequence[str]
Read = Callable[[Path], object]
"""Reads the input in a folder as a part of a command does. What it refuses it raises, as inside a command."""


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    ``make`` writes a valid one into a folder. ``damaged`` are patterns of the files of which one is damaged; if it is
    ``replaceable``, it may give way to something that is no file. Each input is read by one of ``commands``, in which
    ``{}`` stands for the input's folder, or by one of ``reads``, which are parts of commands. ``names_its_file`` says
    that a refusal has the path of a file.
    """

    name: str
    make: Callable[[Path], None]
    damaged: tuple[str, ...]
    damage: Damage
    commands: tuple[Command, ...] = ()
    reads: tuple[Read, ...] = ()
    replaceable: bool = True
    names_its_file: bool = True

    @property
    def uses(self) -> tuple[Command | Read, ...]:
        """The command that reads an input."""
        return (*self.commands, *self.reads)

    def files(self, folder: Path) -> list[Path]:
        """Return the files of the input in ``folder`` that may be damaged."""
        return sorted(path for pattern in self.damaged for path in folder.glob(pattern))

    def damage_one(self, folder: Path, draw: Random) -> Path:
        """Damage one file of the valid input in ``folder``, and return which."""
        file = draw.choice(self.files(folder))
        if self.replaceable and draw.random() < 0.04:
            replace_file(file, draw)
        else:
            file.write_bytes(self.damage(file.read_bytes(), draw))
        return file
