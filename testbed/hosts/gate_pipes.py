"""Hold the pipes of a trial's start gate that are on this machine: where its ranks wait for those of all machines.

A rank writes a byte to the pipe ``met``, then reads from the pipe ``begin`` until nobody has that open for writing.
"""

import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


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
