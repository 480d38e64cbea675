"""Read from a simulated trial's facts how far simulations like it are known to be off, and describe it.

``wanbed.runner.resolve.known_misses`` finds what applies to a trial and has it recorded there. A trial of an older
version has no such fact: nothing is known of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wanbed.results.text import count_text, list_text

MAX_NAMED = 4
"""The most misses that a text names."""

ITERATIONS = "iteration times"
ALL_ITERATIONS = "all iterations together"
GOODPUT = "goodput of a flow"
"""The only figure that is no time: what is simulated below it is too low, not too fast."""


@dataclass(frozen=True)
class KnownMiss:
    """One way in which simulations are off: its name, what a trial is like that it applies to, and by how much.

    ``low`` and ``high`` are the least and the greatest simulated / measured - 1 that were found, each rounded away from
    zero to whole percents, over ``cells`` trials in virtual time. Below zero the simulation is too fast, of a goodput
    too low. ``figure`` is what was compared. Raise ValueError for a range without 0, or from no cell.
    """

    name: str
    what: str
    low: float
    high: float
    cells: int
    figure: str = ITERATIONS

    def __post_init__(self) -> None:
        if not (self.low <= 0 <= self.high and self.cells > 0):
            raise ValueError(f"{self.name}: {self.low} to {self.high} over {self.cells} cells is no range with 0")

    @property
    def range_text(self) -> str:
        """The range as ``-29 % to +7 %``."""
        return f"{_percent(self.low)} to {_percent(self.high)}"

    @property
    def text(self) -> str:
        """Its row in the table of known misses, what it is, which way simulations err, and over how many trials."""
        return f"{self.name}: {self.what} ({self.figure} {self.errs_text}, over {count_text(self.cells, 'trial')})"

    @property
    def mark(self) -> str:
        """Its row in the table of known misses and which way simulations err, for a cell of a table."""
        return f"{self.name} ({self.figure} {self.errs_text})"

    @property
    def errs_text(self) -> str:
        """Which way simulations of its trials err, as ``simulated 29 % too fast to 7 % too slow``."""
        below, above = ("too low", "too high") if self.figure == GOODPUT else ("too fast", "too slow")
        ends = [f"{abs(end) * 100:.0f} % {way}" for end, way in ((self.low, below), (self.high, above)) if end]
        if len(ends) == 1:
            return f"simulated up to {ends[0]}"
        return f"simulated {' to '.join(ends) or 'as measured'}"

    def document(self) -> dict[str, Any]:
        """Return it in plain JSON types, as a trial records it."""
        return asdict(self)


def known_misses_of(facts: Mapping[str, Any]) -> tuple[KnownMiss, ...]:
    """Return what a trial's facts record, () for an emulated trial and one of an older version."""
    return tuple(
        KnownMiss(each["name"], each["what"], each["low"], each["high"], each["cells"], each["figure"])
        for each in facts.get("known_misses") or ()
    )


def known_misses_text(found: Iterable[KnownMiss]) -> str:
    """Write at most ``MAX_NAMED`` different misses, with their ranges; empty for none."""
    texts = [each.text for each in dict.fromkeys(found)]
    more = [f"{len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else []
    return list_text([*texts[:MAX_NAMED], *more])


def _percent(fraction: float) -> str:
    return f"{fraction * 100:+.0f} %" if fraction else "0 %"
