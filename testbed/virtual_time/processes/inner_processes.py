"""Parse the list of processes inside a guest, and select and describe those that keep it stuck."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from wanbed.module_process import RUN_MODULE

_WAIT_BY_NATURE = ("sh", "dash", "bash", "sleep")
"""Programs that normally wait, for a child, for a person or for a timer."""
_MAX_LISTED = 8
_MAX_COMMAND_LENGTH = 80


@dataclass(frozen=True)
class InnerProcess:
    """A process inside a guest: its PID, the kernel's letter for its state, and its command line."""

    number: int
    state: str
    command: str

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return PurePath(self.command.partition(" ")[0]).name

    def __str__(self) -> str:
        command = f"{self.program} {self.command.partition(' ')[2]}".strip().replace(" ".join(RUN_MODULE), "-m", 1)
        if len(command) > _MAX_COMMAND_LENGTH:
            command = f"{command[:_MAX_COMMAND_LENGTH]}..."
        return f"{command} (process {self.number})"


def parse_processes(text: str) -> list[InnerProcess]:
    """Parse lines of PID, state and command line; skip other lines."""
    found = []
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[0].isdigit():
            found.append(InnerProcess(int(words[0]), words[1], words[2].strip()))
    return found


def waiting(processes: Iterable[InnerProcess], own_command: str) -> list[InnerProcess]:
    """Return the processes that may wait for each other: all but shells and sleeps, unless there are no others.

    The first process and its helpers, whose command contains ``own_command``, are left out.
    """
    others = [process for process in processes if process.number != 1 and own_command not in process.command]
    return [process for process in others if process.program not in _WAIT_BY_NATURE] or others


def described(processes: Sequence[InnerProcess]) -> str:
    """Return one line with the first of the processes and the number of the rest."""
    names = [str(process) for process in processes[:_MAX_LISTED]]
    if len(processes) > _MAX_LISTED:
        names.append(f"and {len(processes) - _MAX_LISTED} more")
    return ", ".join(names) or "no process"
