"""Define the WAN link between two datacenters: the conditions of each direction, and how they change during a trial.

Latencies are one-way.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

from wanbed.ground.impairments import IMPAIRMENTS, UNIMPAIRED, Impairments

Values = Mapping[str, Any]
"""Some conditions of a link: values by the name of the field in an experiment file, or ``up``."""


@dataclass(frozen=True)
class LinkConditions:
    """Latency, rates and impairments of one direction of a link. A rate of None is unlimited.

    While a link is not ``up``, nothing that is sent over it arrives.
    """

    latency_ns: int = 0
    rate_bps: int | None = None
    node_pair_rate_bps: int | None = None
    impairments: Impairments = UNIMPAIRED
    up: bool = True

    @property
    def arrives(self) -> bool:
        """False if nothing that is sent arrives."""
        return self.up and not any(each.if_all and value >= 1 for each, value in self.impairments.items())

    def with_values(self, values: Values) -> "LinkConditions":
        """Return the same with other values of some fields."""
        own = {attribute: values[name] for name, attribute in _ATTRIBUTES.items() if name in values}
        impairments = {each.field: values[each.name] for each in IMPAIRMENTS if each.name in values}
        return replace(self, **own, impairments=replace(self.impairments, **impairments))

    def document(self) -> dict[str, Any]:
        """Return latency, rates and impairments in plain JSON types, all at one level, as in manifests."""
        rates = {"rate_bps": self.rate_bps, "node_pair_rate_bps": self.node_pair_rate_bps}
        down = {} if self.up else {"up": False}
        return {"latency_ns": self.latency_ns, **rates, **asdict(self.impairments), **down}

    def dilated(self, factor: float) -> "LinkConditions":
        """Return the same in dilated time: every delay times ``factor``, every rate divided by it."""

        def slower(rate_bps: int | None) -> int | None:
            return None if rate_bps is None else max(1, round(rate_bps / factor))

        return replace(
            self,
            latency_ns=round(self.latency_ns * factor),
            rate_bps=slower(self.rate_bps),
            node_pair_rate_bps=slower(self.node_pair_rate_bps),
            impairments=self.impairments.dilated(factor),
        )

    @property
    def pair_rate_bps(self) -> int | None:
        """The largest rate of one node pair: the smaller of ``node_pair_rate_bps`` and the trunk's rate."""
        rates = [rate for rate in (self.rate_bps, self.node_pair_rate_bps) if rate is not None]
        return min(rates, default=None)


UNRESTRICTED = LinkConditions()
"""No latency, no limit of the rate, no impairment."""

_ATTRIBUTES = {"latency": "latency_ns", "rate": "rate_bps", "node_pair_rate": "node_pair_rate_bps", "up": "up"}
"""The attributes of a link's conditions, but its impairments, by the name of the field."""


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


@dataclass(frozen=True)
class WanLink:
    """The link between two datacenters; ``between`` has their names in the topology's order.

    ``conditions`` are those from the first to the second, ``back`` those of the other direction, None if the same.
    ``courses`` say how each of the two directions changes during a trial, None of one that does not change; a course
    begins with the direction's conditions.
    """

    between: tuple[str, str]
    conditions: LinkConditions
    back: LinkConditions | None = None
    courses: tuple[LinkCourse | None, LinkCourse | None] = (None, None)

    @property
    def directions(self) -> tuple[tuple[tuple[str, str], LinkConditions], ...]:
        """Each direction: the sending and the receiving datacenter, and the conditions."""
        back = self.conditions if self.back is None else self.back
        return (self.between, self.conditions), (self.between[::-1], back)

    @property
    def course_by_ends(self) -> dict[tuple[str, str], LinkCourse]:
        """The course of each direction that changes, by the sending and the receiving datacenter."""
        there, back = self.courses
        both = ((self.between, there), (self.between[::-1], back))
        return {ends: course for ends, course in both if course is not None}

    def at(self, time_ns: int) -> "WanLink":
        """Return the same link as it is at a time since training began, for ever."""
        there, back = (
            conditions if course is None else course.at(time_ns)
            for (_, conditions), course in zip(self.directions, self.courses, strict=True)
        )
        return link_of(self.between, there, back)

    def every_conditions(self) -> Iterator[tuple[tuple[str, str], LinkConditions, int | None]]:
        """Yield the conditions of each direction, with when they begin; None of a direction that does not change."""
        courses = self.course_by_ends
        for ends, conditions in self.directions:
            if ends not in courses:
                yield ends, conditions, None
                continue
            for change in courses[ends].changes:
                yield ends, change.conditions, change.at_ns

    def changed(self, change: Callable[[LinkConditions], LinkConditions]) -> "WanLink":
        """Return the same link with ``change`` made to each direction, at every time of its course."""
        (_, there), (_, back) = self.directions
        changed_there, changed_back = (None if each is None else each.changed(change) for each in self.courses)
        return link_of(self.between, change(there), change(back), (changed_there, changed_back))

    def dilated(self, factor: float) -> "WanLink":
        """Return the same link in dilated time."""
        link = self.changed(lambda conditions: conditions.dilated(factor))
        there, back = (None if each is None else each.stretched(factor) for each in link.courses)
        return link_of(link.between, link.conditions, link.directions[1][1], (there, back))

    def documents(self) -> list[dict[str, Any]]:
        """Return the link in plain JSON types, as in manifests: one entry for both directions, or one for each."""
        if self.back is None and self.courses[0] == self.courses[1]:
            return [{"between": list(self.between), **self.conditions.document(), **_course_document(self.courses[0])}]
        return [
            {"from": source, "to": destination, **conditions.document(), **_course_document(course)}
            for ((source, destination), conditions), course in zip(self.directions, self.courses, strict=True)
        ]


def link_of(
    between: tuple[str, str],
    there: LinkConditions,
    back: LinkConditions,
    courses: tuple[LinkCourse | None, LinkCourse | None] = (None, None),
) -> WanLink:
    """Return the link with these conditions and courses from its first end to its second, and back.

    A course that never changes, however it is written or was changed, is left out: conditions say the same.
    """
    there_course, back_course = (each if each is not None and len(each.changes) > 1 else None for each in courses)
    return WanLink(between, there, None if back == there else back, (there_course, back_course))


def _course_document(course: LinkCourse | None) -> dict[str, Any]:
    return {} if course is None else {"course": course.document()}


def longest_outage_ns(link: WanLink) -> int:
    """Return the longest time for which nothing and no answer to it may cross the link; 0 if it is never down.

    If both directions have the same course, that is its longest outage. If not, those of both may follow each other:
    it is the longest of the one and of the other together, a bound.
    """
    there, back = (0 if course is None else _longest_ns(course) for course in link.courses)
    return there if link.courses[0] == link.courses[1] else there + back


def _longest_ns(course: LinkCourse) -> int:
    """Return the longest outage of a course. One that it ends with is none: training would not go on after it."""
    longest_ns, since_ns = 0, None
    # A course begins with a link that is up, so that no outage goes on in its next period.
    for at_ns, up in [*((each.at_ns, each.conditions.up) for each in course.changes), *_end(course)]:
        if not up and since_ns is None:
            since_ns = at_ns
        elif up and since_ns is not None:
            longest_ns, since_ns = max(longest_ns, at_ns - since_ns), None
    return longest_ns


def _end(course: LinkCourse) -> list[tuple[int, bool]]:
    return [] if course.period_ns is None else [(course.period_ns, course.first.up)]
