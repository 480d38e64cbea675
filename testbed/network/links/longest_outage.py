"""Say for how long a link lets nothing through in one go, by its conditions over time."""

from wanbed.testbed.network.links.link_course import LinkCourse
from wanbed.testbed.network.links.wan_link import WanLink


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
