"""Describe one claim of the paper beside its reproduction."""

from dataclasses import dataclass
from enum import StrEnum


class ClaimSource(StrEnum):
    """The origin of a claimed figure. Only the paper's abstract, contents and captions were available."""

    PAPER = "paper"
    RECALLED = "recalled"
    OURS = "ours"


@dataclass(frozen=True)
class PaperClaim:
    """One claim, with ``claimed`` and ``reproduced`` as text; ``reproduced`` is None if it was not run.

    ``ratio`` is reproduced / claimed, None without figures. ``why`` explains why they differ, or what the figure
    includes.
    """

    topic: str
    statement: str
    source: ClaimSource
    claimed: str
    reproduced: str | None
    ratio: float | None
    why: str
