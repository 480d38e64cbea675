"""For how long nothing crosses a link in one go, whatever its course."""

from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse, course_of
from wanbed.testbed.network.links.longest_outage import longest_outage_ns
from wanbed.testbed.network.links.wan_link import WanLink

UP, SLOW = LinkConditions(10_000_000, 10**9), LinkConditions(10_000_000, 10**6)
DOWN, DOWN_TOO = LinkConditions(up=False), LinkConditions(20_000_000, up=False)


def outage_ns(there: LinkCourse | None, back: LinkCourse | None) -> int:
    return longest_outage_ns(WanLink(("east", "west"), UP, courses=(there, back)))


def test_a_link_that_is_never_down_has_none() -> None:
    steps = course_of([(0, UP), (100, SLOW), (300, UP)])
    assert outage_ns(None, None) == outage_ns(steps, None) == outage_ns(steps, steps) == 0


def test_the_longest_of_several_counts() -> None:
    course = course_of([(0, UP), (100, DOWN), (150, UP), (200, DOWN), (290, SLOW), (400, DOWN), (420, UP)])
    assert outage_ns(course, course) == outage_ns(None, course) == 90


def test_an_outage_goes_on_while_other_conditions_change() -> None:
    course = course_of([(0, UP), (100, DOWN), (150, DOWN_TOO), (400, UP)])
    assert outage_ns(course, course) == 300


def test_outages_of_two_different_directions_may_follow_each_other() -> None:
    there = course_of([(0, UP), (100, DOWN), (150, UP)])
    back = course_of([(0, UP), (140, DOWN), (240, UP)])
    assert outage_ns(there, back) == 150


def test_an_outage_at_the_end_of_a_period_ends_with_it() -> None:
    assert outage_ns(course_of([(0, UP), (100, DOWN)], period_ns=130), None) == 30
