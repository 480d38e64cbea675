"""Describe one claim of the paper beside its reproduction."""

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """The origin of a claimed figure. Only the paper's abstract, contents and captions were available."""

    PAPER = "paper"
    RECALLED = "recalled"
    OURS = "ours"


@dataclass(frozen=True)
class Claim:
    """One claim, with ``claimed`` and ``reproduced`` as text; ``reproduced`` is None if it was not run.

    ``ratio`` is reproduced / claimed, None without figures. ``why`` explains why they differ, or what the figure
    includes.
    """

    topic: str
    statement: str
    source: Source
    claimed: str
    reproduced: str | None
    ratio: float | None
    why: str
