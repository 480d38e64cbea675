"""Define the WAN link between two datacenters: the conditions of both directions, and how they change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse


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
