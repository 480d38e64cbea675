"""Define how the conditions of one direction of a link change during a trial."""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

from wanbed.testbed.network.links.link_conditions import LinkConditions

MAX_CHANGES = 100_000
"""The most changes of one course."""


@dataclass(frozen=True)
class Change:
    """From ``at_ns`` on, a time since training began, the link has ``conditions``, all of them."""

    at_ns: int
    conditions: LinkConditions


@dataclass(frozen=True)
class LinkCourse:
    """The conditions of one direction of a link over time: each change holds until the next.

    ``changes`` begins at 0 and its times rise; conditions that follow each other differ. The last holds for ever, or
    until ``period_ns``, when the course begins anew. ``source`` says to people where it comes from. It is ``synthetic``
    if a generator drew it.
    """

    changes: tuple[Change, ...]
    period_ns: int | None = None
    source: str = ""
    synthetic: bool = False

    def __post_init__(self) -> None:
        times_ns = [change.at_ns for change in self.changes]
        if times_ns[:1] != [0] or any(earlier >= later for earlier, later in pairwise(times_ns)):
            raise ValueError("the times of a course begin at 0 and rise")
        if any(one.conditions == other.conditions for one, other in pairwise(self.changes)):
            raise ValueError("a change of a course changes something")
        if self.period_ns is not None and self.period_ns <= times_ns[-1]:
            raise ValueError("a course begins anew only after its last change")

    @property
    def first(self) -> LinkConditions:
        """The conditions when training begins, which also hold before."""
        return self.changes[0].conditions

    @property
    def distinct(self) -> tuple[LinkConditions, ...]:
        """Each of the conditions once, in the order in which they come first."""
        return tuple(dict.fromkeys(change.conditions for change in self.changes))

    def at(self, time_ns: int) -> LinkConditions:
        """Return the conditions at a time since training began; before, those of its begin."""
        within_ns = time_ns if self.period_ns is None or time_ns < 0 else time_ns % self.period_ns
        position = bisect_right(self.changes, within_ns, key=lambda change: change.at_ns)
        return self.changes[max(position, 1) - 1].conditions

    def changes_after(self, time_ns: int) -> Iterator[Change]:
        """Yield every change later than ``time_ns``, in order; for ever if the course repeats."""
        begin_ns = 0
        if self.period_ns is not None:
            begin_ns = max(time_ns, 0) // self.period_ns * self.period_ns
        previous = self.at(time_ns)
        while True:
            for change in self.changes:
                at_ns = begin_ns + change.at_ns
                if at_ns > time_ns and change.conditions != previous:
                    yield Change(at_ns, change.conditions)
                    previous = change.conditions
            if self.period_ns is None or len(self.changes) == 1:
                return
            begin_ns += self.period_ns

    def changed(self, change: Callable[[LinkConditions], LinkConditions]) -> "LinkCourse":
        """Return the same course with ``change`` made to all of its conditions."""
        return course_of(
            ((each.at_ns, change(each.conditions)) for each in self.changes),
            period_ns=self.period_ns,
            source=self.source,
            synthetic=self.synthetic,
        )

    def stretched(self, factor: float) -> "LinkCourse":
        """Return the same course with every time, but not the conditions, multiplied by ``factor``."""
        return replace(
            self,
            changes=tuple(replace(each, at_ns=round(each.at_ns * factor)) for each in self.changes),
            period_ns=None if self.period_ns is None else round(self.period_ns * factor),
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all changes and the period, hexadecimal."""
        digest = sha256(str(self.period_ns).encode())
        for change in self.changes:
            digest.update(json.dumps([change.at_ns, change.conditions.document()], sort_keys=True).encode())
        return digest.hexdigest()

    def document(self) -> dict[str, Any]:
        """Return what tells the course from others in plain JSON types, as in manifests.

        A course may have ``MAX_CHANGES`` changes, so they stand for themselves in the experiment's document (its
        events, generators and traces), from which the same course follows, and here as their number and digest.
        """
        return {
            "source": self.source,
            "synthetic": self.synthetic,
            "period_ns": self.period_ns,
            "changes": len(self.changes) - 1,
            "last_change_ns": self.changes[-1].at_ns,
            "sha256": self.digest,
        }


def course_of(
    conditions_at: Iterable[tuple[int, LinkConditions]],
    *,
    period_ns: int | None = None,
    source: str = "",
    synthetic: bool = False,
) -> LinkCourse:
    """Return a course of conditions by their times, which begin at 0 and rise; leave out what changes nothing."""
    changes: list[Change] = []
    for at_ns, conditions in conditions_at:
        if not changes or changes[-1].conditions != conditions:
            changes.append(Change(at_ns, conditions))
    return LinkCourse(tuple(changes), period_ns, source, synthetic)
