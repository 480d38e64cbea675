"""Hold what the paper claims, beside what came out here."""

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """The origin of a claimed figure. Of the paper only abstract, contents and captions were at hand."""

    PAPER = "paper"
    RECALLED = "recalled"
    OURS = "ours"


@dataclass(frozen=True)
class Claim:
    """One claim: ``claimed`` and ``reproduced`` in words, None for what was not run.

    ``ratio`` is reproduced over claimed, None where there is no figure to divide by. ``why`` explains why they differ,
    or what the figure holds.
    """

    topic: str
    statement: str
    source: Source
    claimed: str
    reproduced: str | None
    ratio: float | None
    why: str
