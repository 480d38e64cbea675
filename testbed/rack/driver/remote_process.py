"""A process on a machine of the rack, as the driver sees it."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol, Self

from wanbed.ground.wanbed_error import WanbedError

_LOOK_S = 0.02
"""The time between two looks at what a program has printed."""


class ProcessCalls(Protocol):
    """The part of its machine that a process needs."""

    def output(self, number: int, offset: int) -> bytes:
        """Return what a process has printed from this byte on."""

    def kill(self, number: int, signal_number: int) -> None:
        """Send a signal to a process, if it still runs."""


class RemoteProcess:
    """A process by its ``number`` on its machine; the machine says when it has ended."""

    def __init__(self, number: int, calls: ProcessCalls) -> None:
        self.pid = number
        self.returncode: int | None = None
        self.ended_ns: int | None = None
        """The moment of its end, by the machine's clock less its lead when the trial began; None if unknown."""
        self._calls = calls
        self._ended = threading.Event()
        self._end_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        os.close(self._end_event)

    def end(self, status: int, ended_ns: int | None = None) -> None:
        """Note that the process has ended, and when."""
        self.ended_ns = ended_ns
        self.returncode = status
        os.eventfd_write(self._end_event, 1)
        self._ended.set()

    def fileno(self) -> int:
        """Return a descriptor that is readable once the process has ended."""
        return self._end_event

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raise subprocess.TimeoutExpired after ``timeout`` seconds."""
        self._ended.wait(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, if it still runs."""
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        if self.returncode is None:
            # A machine that has gone has ended its processes too.
            with suppress(WanbedError):
                self._calls.kill(self.pid, number)


class RemoteProgram(RemoteProcess):
    """A program whose output the driver reads, as text."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    @property
    def stdout(self) -> Iterator[str]:
        """The lines that the program prints, from the first, as they come until it ends."""
        printed, offset = "", 0
        while True:
            over = self.returncode is not None
            new = self._calls.output(self.pid, offset)
            offset += len(new)
            printed += new.decode(errors="replace")
            *lines, printed = printed.split("\n")
            yield from (f"{line}\n" for line in lines)
            if over:
                if printed:
                    yield printed
                return
            if not new:
                time.sleep(_LOOK_S)

    def communicate(self, *, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end and return all that was printed. Raise subprocess.TimeoutExpired after ``timeout``."""
        self.wait(timeout)
        return self._calls.output(self.pid, 0).decode(errors="replace"), None


Ending = Callable[[int], None]
"""Called when a process has ended, with its exit status, before anybody else learns of it."""
