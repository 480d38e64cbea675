"""List the processes inside a guest, as its first process writes them down, and those that keep it stuck."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from wanbed.own_modules import RUN_MODULE

_WAIT_BY_NATURE = ("sh", "dash", "bash", "sleep")
"""For a child, for a person or for a timer: what they wait for is no news."""
_MAX_LISTED = 8
_MAX_COMMAND_LENGTH = 80


@dataclass(frozen=True)
class InnerProcess:
    """A process: its state, as the kernel's letter for it, and its command."""

    number: int
    state: str
    command: str

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return PurePath(self.command.partition(" ")[0]).name

    def __str__(self) -> str:
        command = f"{self.program} {self.command.partition(' ')[2]}".strip().replace(" ".join(RUN_MODULE), "-m", 1)
        if len(command) > _MAX_COMMAND_LENGTH:
            command = f"{command[:_MAX_COMMAND_LENGTH]}..."
        return f"{command} (process {self.number})"


def parse_processes(text: str) -> list[InnerProcess]:
    """Parse lines of number, state and command; leave out what is no such line."""
    found = []
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[0].isdigit():
            found.append(InnerProcess(int(words[0]), words[1], words[2].strip()))
    return found


def waiting(processes: Iterable[InnerProcess], own_command: str) -> list[InnerProcess]:
    """Return those that may wait for each other: all but shells and sleeps, unless these are all there are.

    ``own_command`` is that of the first process and its helpers, which are left out.
    """
    others = [process for process in processes if process.number != 1 and own_command not in process.command]
    return [process for process in others if process.program not in _WAIT_BY_NATURE] or others


def described(processes: Sequence[InnerProcess]) -> str:
    """Name some of them, in one line."""
    names = [str(process) for process in processes[:_MAX_LISTED]]
    if len(processes) > _MAX_LISTED:
        names.append(f"and {len(processes) - _MAX_LISTED} more")
    return ", ".join(names) or "no process"
