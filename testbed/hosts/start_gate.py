"""Open the gate at which ranks wait for each other: the side of it that lets them begin."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self


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

    ``pipes`` are the names of the pipe to which a rank writes a byte when it comes, and of the one from which it then
    reads until it may begin. ``missing`` is how many had not come yet when somebody last looked. ``begin`` is called
    just before the gate is opened because all have come. If it does not ``open_itself``, only ``open`` does.
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
        folder.mkdir()
        for name in pipes:
            os.mkfifo(folder / name, 0o600)
        self.is_open = False
        self.opened_ns: int | None = None
        self.missing = ranks
        self._all_have_come, self._opens_itself = begin, opens_itself
        met, begins = pipes
        # With a writer of its own neither pipe ends before all have come, and opening one never waits.
        self._met = os.open(folder / met, os.O_RDWR | os.O_NONBLOCK)
        try:
            self._begin: int | None = os.open(folder / begins, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(self._met)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()
        os.close(self._met)

    def fileno(self) -> int:
        """Return the file descriptor that is readable when a rank has come."""
        return self._met

    @property
    def is_complete(self) -> bool:
        """True if all had come when somebody last looked."""
        return self.missing <= 0

    def look(self) -> None:
        """Open the gate if all ranks have come."""
        try:
            self.missing -= len(os.read(self._met, 65_536))
        except BlockingIOError:
            return
        if self._opens_itself and self.is_complete:
            self._all_have_come()
            self.open()

    def open(self) -> None:
        """Let everybody begin, who is there and who is still to come."""
        self.is_open = True
        if self._begin is not None:
            self.opened_ns = time.monotonic_ns()
            os.close(self._begin)
            self._begin = None
