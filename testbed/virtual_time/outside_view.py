"""Watch a guest from the outside, without its cooperation: how far its clock is, and how long it has computed."""

import os
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.kernel.machine_load import process_tree_cpu_s

_NANOSECONDS = struct.Struct("=Q")


class OutsideView:
    """Look at the guest that ``launcher`` started: a shell, whose one child is the guest's kernel."""

    def __init__(self, launcher: int, clock_address: int) -> None:
        self._launcher = launcher
        self._clock_address = clock_address
        self._kernel: int | None = None

    @property
    def kernel(self) -> int | None:
        """The process that is the guest's kernel, None while there is none."""
        if self._kernel is None:
            shell = next(_children(self._launcher), None)
            for process in [] if shell is None else _children(shell):
                with suppress(OSError):
                    if Path(f"/proc/{process}/comm").read_text() == "linux\n":
                        self._kernel = process
        return self._kernel

    def virtual_ns(self) -> int | None:
        """Return the guest's clock, nanoseconds since it started, read in its memory; None while there is none.

        Raises PermissionError where this process may not look into another one's memory.
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
        """Return the CPU seconds that the guest's kernel and the processes inside have used."""
        return process_tree_cpu_s(self._launcher)

    def interrupt_running(self) -> None:
        """Interrupt a process that computes without ever calling its kernel, so that the kernel gets control."""
        if self.kernel is None:
            return
        for process in _children(self.kernel):
            with suppress(OSError):
                if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "R":
                    os.kill(process, signal.SIGALRM)


def _children(process: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                    yield int(entry.name)
