"""Judge what was simulated against what was published."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from studies.foretold.source import Form, Group, Row

BAND = 0.05
"""A row counts as met within this error."""


@dataclass(frozen=True)
class Outcome:
    """A row and what was simulated for it."""

    row: Row
    simulated: float

    @property
    def error(self) -> float:
        """The simulated figure over the published one, less 1."""
        return self.simulated / self.row.published - 1

    @property
    def met(self) -> bool:
        """Whether the error is within the band."""
        return abs(self.error) <= BAND


@dataclass(frozen=True)
class Tally:
    """What some outcomes say together: the median and the largest size of the errors, and how many rows are met."""

    rows: int
    median: float
    worst: float
    met: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Tally":
        """Judge outcomes, at least one."""
        errors = [outcome.error for outcome in outcomes]
        return cls(
            len(errors),
            median(map(abs, errors)),
            max(errors, key=abs),
            sum(outcome.met for outcome in outcomes),
        )

    @property
    def share_met(self) -> float:
        """The share of rows within the band."""
        return self.met / self.rows


def counted(outcomes: Iterable[Outcome], how: str) -> list[Outcome]:
    """Return the outcomes whose form counts so: foretold, misread, explained or tried."""
    return [outcome for outcome in outcomes if outcome.row.form.counted == how]


def as_first_read(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes of the forms that the first reading of each source gave, whether it was right or not."""
    return [outcome for outcome in outcomes if outcome.row.form is _first_read(outcome.row.group)]


def _first_read(group: Group) -> Form | None:
    found = {form.counted: form for form in group.forms}
    return found.get("misread", found.get("foretold"))
