"""Open the gate at which ranks wait for each other, and hold the pipes of it that are on this machine.

A rank writes a byte to the pipe ``met``, then reads from the pipe ``begin`` until nobody has that open for writing.
"""

import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self


class GatePipes:
    """Two named pipes in a new folder; ``pipes`` are the names of ``met`` and ``begin``."""

    def __init__(self, folder: Path, pipes: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        for name in pipes:
            os.mkfifo(folder / name, 0o600)
        met, begin = pipes
        # With a writer of its own neither pipe ends before it is opened, and opening one never waits.
        self._met = os.open(folder / met, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._begin: int | None = os.open(folder / begin, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(self._met)
            raise
        self._arrived = 0

    def fileno(self) -> int:
        """Return a descriptor that is readable when a rank has come."""
        return self._met

    def arrivals(self, known: int, timeout_s: float) -> int:
        """Return how many ranks have come; wait until there are more than ``known``, at most for ``timeout_s``."""
        if self._arrived <= known:
            select.select([self._met], [], [], timeout_s)
        return self.arrived()

    def arrived(self) -> int:
        """Return how many ranks have come by now."""
        with suppress(BlockingIOError):
            self._arrived += len(os.read(self._met, 65_536))
        return self._arrived

    def open(self, at_ns: int = 0) -> None:
        """Let everybody begin at this moment of this machine's clock, or now if it has passed."""
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        begin, self._begin = self._begin, None
        if begin is not None:
            os.close(begin)

    def close(self) -> None:
        """Open the gate and release the pipes."""
        self.open()
        os.close(self._met)


class Gate(Protocol):
    """A gate for the ranks of a trial; ``with`` opens it at the latest when it ends.

    ``opened_ns`` is when it was opened, by CLOCK_MONOTONIC of this machine, None before.
    """

    is_open: bool
    opened_ns: int | None

    @property
    def is_complete(self) -> bool:
        """True if all had come when somebody last looked."""

    def __enter__(self) -> Any:
        """Return the gate."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Open the gate and remove it."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when it is worth a look."""

    def look(self) -> None:
        """Open the gate if all ranks have come."""

    def open(self) -> None:
        """Let everybody begin, who is there and who is still to come."""


class StartGate:
    """A gate for so many ranks in a folder of its own; ``with`` opens it at the latest when it ends.

    ``pipes`` are as for ``GatePipes``. ``begin`` is called just before the gate is opened because all have come. If it
    does not ``open_itself``, only ``open`` does.
    """

    def __init__(
        self,
        folder: Path,
        ranks: int,
        pipes: tuple[str, str],
        begin: Callable[[], None] = lambda: None,
        *,
        opens_itself: bool = True,
    ) -> None:
        self.is_open = False
        self.opened_ns: int | None = None
        self.is_complete = False
        self._ranks, self._begin, self._opens_itself = ranks, begin, opens_itself
        self._pipes = GatePipes(folder, pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()
        self._pipes.close()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a rank has come."""
        return self._pipes.fileno()

    def look(self) -> None:
        """Open the gate if all ranks have come."""
        self.is_complete = self._pipes.arrived() >= self._ranks
        if self._opens_itself and self.is_complete and not self.is_open:
            self._begin()
            self.open()

    def open(self) -> None:
        """Let everybody begin, who is there and who is still to come."""
        if not self.is_open:
            self.is_open = True
            self.opened_ns = time.monotonic_ns()
            self._pipes.open()
