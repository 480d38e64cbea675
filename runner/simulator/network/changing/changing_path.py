"""Define the path between hosts of two datacenters whose link changes: what both directions are like at any time."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import Change, LinkCourse

UNLIMITED_BPS: Final = 10**15
"""The capacity of a link that has no rate for a time: a gigabyte takes 8 us."""


def constant(conditions: LinkConditions) -> LinkCourse:
    """Return the course of a direction that does not change."""
    return LinkCourse((Change(0, conditions),))


def next_change_ns(course: LinkCourse, after_ns: int) -> int | None:
    """Return when the course changes next, later than ``after_ns``, None if never."""
    changes, period_ns = course.changes, course.period_ns
    if len(changes) == 1:
        return None
    begin_ns = 0 if period_ns is None else after_ns // period_ns * period_ns
    position = bisect_right(changes, after_ns - begin_ns, key=_at_ns)
    if position < len(changes):
        return begin_ns + changes[position].at_ns
    return None if period_ns is None else begin_ns + period_ns


def pair_bps(conditions: LinkConditions) -> int:
    """Return the capacity of a node pair."""
    rate_bps = conditions.pair_rate_bps
    return UNLIMITED_BPS if rate_bps is None else rate_bps


def trunk_bps(conditions: LinkConditions) -> int:
    """Return the capacity of the trunk."""
    return UNLIMITED_BPS if conditions.rate_bps is None else conditions.rate_bps


@dataclass(frozen=True)
class ChangingPath:
    """The courses of both directions of a link, as a sender sees them: its bytes go ``there``, acknowledgements back.

    ``port_bps`` is the rate of the port at which bytes arrive. ``headers`` is that of ``Line``.
    """

    there: LinkCourse
    back: LinkCourse
    port_bps: int | None
    headers: bool

    @property
    def fails(self) -> bool:
        """Whether one of the directions is ever down."""
        return any(not each.up for course in (self.there, self.back) for each in course.distinct)

    def line(self, at_ns: int) -> Line:
        """Return the line as it is at that time, unshared: with the rate of the narrowest resource that it crosses."""
        there, back = self.there.at(at_ns), self.back.at(at_ns)
        rates = [rate_bps for rate_bps in (there.pair_rate_bps, self.port_bps) if rate_bps is not None]
        return Line(min(rates, default=None), there.latency_ns, self.headers, back.latency_ns)

    def next_change_ns(self, after_ns: int) -> int | None:
        """Return when one of the directions changes next, None if never."""
        times_ns = [next_change_ns(course, after_ns) for course in (self.there, self.back)]
        return min((time_ns for time_ns in times_ns if time_ns is not None), default=None)

    def is_up(self, at_ns: int) -> bool:
        """Return whether what is sent then arrives."""
        return self.there.at(at_ns).up

    def answers(self, credit_ns: int) -> bool:
        """Return whether an acknowledgement that would come at ``credit_ns`` comes."""
        sent_ns = credit_ns - self.back.at(credit_ns).latency_ns
        return self.back.at(sent_ns).up

    def up_ns(self, from_ns: int) -> int | None:
        """Return the first time, not before ``from_ns``, at which what is sent arrives; None if never again."""
        for _ in range(len(self.there.changes) + 1):
            if self.is_up(from_ns):
                return from_ns
            after_ns = next_change_ns(self.there, from_ns)
            if after_ns is None:
                return None
            from_ns = after_ns
        return None


def _at_ns(change: Change) -> int:
    return change.at_ns
