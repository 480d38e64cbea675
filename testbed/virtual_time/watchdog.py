"""Detect from the outside that a guest is stuck, without its cooperation, and name the processes that keep it so.

A guest's clock stands still while a process computes, and jumps to the next timer when all processes wait. So a process
that waits in a busy loop stops the clock for ever. If all processes wait for each other, only the kernel's own timers
are left, and the clock advances by days in a second.
"""

import os
import signal
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from wanbed.module_process import RUN_MODULE
from wanbed.testbed.kernel.processors import process_tree_cpu_s

_S = 10**9


@dataclass(frozen=True)
class Patience:
    """The limits on how long a guest may go without progress.

    ``spin_cpu_s`` is the CPU time for which its clock may stand still while it computes; not wall time, of which a busy
    machine gives it little. ``quiet_virtual_s`` is the virtual time without a new sign of progress. ``still_wall_s`` is
    the wall time in which neither the clock advances nor the guest computes.
    """

    spin_cpu_s: float = 60.0
    quiet_virtual_s: float = 30 * 86_400.0
    still_wall_s: float = 600.0


@dataclass(frozen=True)
class Watch:
    """A way to see that a guest is stuck: it has made no progress for longer than ``patience`` allows.

    It has if ``sign`` returns a new value; None stands for the bytes of its output.
    """

    patience: Patience = Patience()
    sign: Callable[[], object] | None = None


PATIENT = Watch()


@dataclass(frozen=True)
class Look:
    """A guest at one moment: wall clock, virtual clock, CPU time, and a ``sign`` that changes with its progress."""

    wall_s: float
    virtual_ns: int
    cpu_s: float
    sign: object


class Watchdog:
    """Decide from successive looks whether a guest is stuck."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._clock_moved: Look | None = None
        self._sign_seen: Look | None = None
        self._computed: Look | None = None

    def spins(self, look: Look) -> bool | None:
        """Return True if the guest is stuck in computation, False if it is stuck waiting, None if it is not stuck."""
        if self._clock_moved is None or self._clock_moved.virtual_ns != look.virtual_ns:
            self._clock_moved = look
        if self._sign_seen is None or self._sign_seen.sign != look.sign:
            self._sign_seen = look
        if self._computed is None or self._computed.cpu_s != look.cpu_s or self._clock_moved is look:
            self._computed = look
        if look.cpu_s - self._clock_moved.cpu_s > self._patience.spin_cpu_s:
            return True
        if look.virtual_ns - self._sign_seen.virtual_ns > self._patience.quiet_virtual_s * _S:
            return False
        if look.wall_s - self._computed.wall_s > self._patience.still_wall_s:
            return False
        return None


_NANOSECONDS = struct.Struct("=Q")


class OutsideView:
    """Observe the guest that process ``launcher`` started. Its child is a shell, whose child is the guest's kernel."""

    def __init__(self, launcher: int, clock_address: int) -> None:
        self._launcher = launcher
        self._clock_address = clock_address
        self._kernel: int | None = None
        self._seen: dict[int, tuple[int, int]] = {}

    @property
    def kernel(self) -> int | None:
        """PID of the guest's kernel, None while there is none."""
        if self._kernel is None:
            shell = next(_children(self._launcher), None)
            for process in [] if shell is None else _children(shell):
                with suppress(OSError):
                    if Path(f"/proc/{process}/comm").read_text() == "linux\n":
                        self._kernel = process
        return self._kernel

    def virtual_ns(self) -> int | None:
        """Return the guest's clock in nanoseconds since its start, read from its memory; None while there is none.

        Raise PermissionError if this process may not read another process's memory.
        """
        if self.kernel is None:
            return None
        try:
            with open(f"/proc/{self.kernel}/mem", "rb", buffering=0) as memory:
                read = os.pread(memory.fileno(), _NANOSECONDS.size, self._clock_address)
        except (FileNotFoundError, ProcessLookupError, OSError) as fault:
            if isinstance(fault, PermissionError):
                raise
            return None
        return None if len(read) < _NANOSECONDS.size else int(_NANOSECONDS.unpack(read)[0])

    def cpu_s(self) -> float:
        """Return the CPU seconds used by the guest's kernel and the processes inside."""
        return process_tree_cpu_s(self._launcher)

    def interrupt_spinning(self) -> None:
        """Interrupt processes that computed without a system call since the last call, so that the kernel gets control.

        A system call of the guest is a stop of its process, which its kernel makes for it. A signal in the midst of one
        would end the process.
        """
        seen = {} if self.kernel is None else {process: _progress(process) for process in _children(self.kernel)}
        for process, (stops, cpu_ticks) in seen.items():
            stops_before, cpu_ticks_before = self._seen.get(process, (None, 0))
            if stops == stops_before and cpu_ticks > cpu_ticks_before:
                with suppress(OSError):
                    os.kill(process, signal.SIGALRM)
        self._seen = seen


def _children(process: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                    yield int(entry.name)


def _progress(process: int) -> tuple[int, int]:
    """Return how often a process gave its core away by itself, and the clock ticks for which it has computed."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    stops = next(line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches:"))
    return int(stops.split()[1]), int(stat[11]) + int(stat[12])


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
