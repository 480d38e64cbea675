"""Open the gate at which ranks wait for each other: the runner's side of it."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.start_gate import BEGIN, MET


class Gate(Protocol):
    """A gate for the ranks of a trial; ``with`` opens it at the latest when it ends.

    ``opened_ns`` is when it was opened, by CLOCK_MONOTONIC of this machine, None before.
    """

    is_open: bool
    opened_ns: int | None

    @property
    def is_complete(self) -> bool:
        """Whether all had come when somebody last looked."""

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


def start_gate(
    testbed: RunningTestbed,
    folder: Path,
    hosts: Sequence[str],
    *,
    begin: Callable[[], None] = lambda: None,
    opens_itself: bool = True,
) -> Gate:
    """Return a gate in the new folder ``folder`` for a rank on each of these hosts, on their machines if those differ.

    A host may be named several times. ``begin`` is called when all ranks have come, just before the gate is opened for
    them. If it does not ``open_itself``, only ``open`` does.
    """
    if testbed.rack is not None:
        return testbed.rack.gate(folder, hosts, (MET, BEGIN), begin=begin, opens_itself=opens_itself)
    return StartGate(folder, len(hosts), begin, opens_itself=opens_itself)


class StartGate:
    """A gate for so many ranks in a folder of its own; ``with`` opens it at the latest when it ends.

    ``missing`` is how many had not come yet when somebody last looked. ``begin`` is called just before it is opened
    because all have come. If it does not ``open_itself``, only ``open`` does.
    """

    def __init__(
        self, folder: Path, ranks: int, begin: Callable[[], None] = lambda: None, *, opens_itself: bool = True
    ) -> None:
        folder.mkdir()
        for name in (MET, BEGIN):
            os.mkfifo(folder / name, 0o600)
        self.is_open = False
        self.opened_ns: int | None = None
        self.missing = ranks
        self._all_have_come, self._opens_itself = begin, opens_itself
        # With a writer of its own neither pipe ends before all have come, and opening one never waits.
        self._met = os.open(folder / MET, os.O_RDWR | os.O_NONBLOCK)
        try:
            self._begin: int | None = os.open(folder / BEGIN, os.O_RDWR | os.O_CLOEXEC)
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
        """Whether all had come when somebody last looked."""
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
