"""Observe a guest from the outside, without its cooperation: its clock and its CPU time."""

import os
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from wanbed.testbed.kernel.machine_load import process_tree_cpu_s

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
