"""Define what can be done with files that processes of hosts have written on other machines than this one."""

from collections.abc import Iterable, Sequence
from typing import Protocol


class Mirror(Protocol):
    """Copies, in a folder of this machine, of what processes write to it on other machines. Patterns are below it."""

    def look(self, patterns: Sequence[str]) -> None:
        """Add what files that match have got since the last look. Raise MachineLostError if a machine has gone."""

    def take(self, patterns: Sequence[str]) -> None:
        """Add what files that match have got since the last look, and remove them on the machines."""


class SharedDisk(Protocol):
    """A folder as processes on other machines have it, which is to be as if they shared a disk with this one."""

    def names(self, pattern: str) -> set[str]:
        """Return the files that match, like ``after-*/stage-*``, of any other machine. Nothing is copied."""

    def spread(self, names: Iterable[str]) -> None:
        """Copy files of this folder, each of which a machine has, here and to the machines that lack them."""

    def remove(self, pattern: str) -> None:
        """Remove the files that match on every other machine."""


class NoFilesElsewhere:
    """The ``Mirror`` and the ``SharedDisk`` of a testbed without other machines: each file is where it was written."""

    def look(self, patterns: Sequence[str]) -> None:
        """Do nothing."""

    def take(self, patterns: Sequence[str]) -> None:
        """Do nothing."""

    def names(self, pattern: str) -> set[str]:
        """Return no file."""
        return set()

    def spread(self, names: Iterable[str]) -> None:
        """Do nothing."""

    def remove(self, pattern: str) -> None:
        """Do nothing."""
