"""Identify a trial: one run of one variant at one sweep point."""

from typing import NamedTuple


class TrialId(NamedTuple):
    """Identify a trial within its run; these are also the first columns of all its tables.

    ``point`` is the sweep point's index and ``repeat`` counts repetitions, both from 0.
    """

    point: int
    variant: str
    repeat: int

    def __str__(self) -> str:
        return f"sweep point {self.point}, {' '.join(self.variant.split())}, repeat {self.repeat}"
