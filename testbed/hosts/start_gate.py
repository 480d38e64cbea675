"""Open the gate at which ranks wait for each other: the side of it that lets them begin."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from wanbed.testbed.hosts.gate_pipes import GatePipes


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
