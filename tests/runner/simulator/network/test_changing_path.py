"""What a path whose link changes is like at any time, by its two courses."""

import pytest

from wanbed.runner.simulator.network.changing.changing_links import pair_range_bps, trunk_range_bps
from wanbed.runner.simulator.network.changing.changing_path import (
    UNLIMITED_BPS,
    ChangingPath,
    constant,
    next_change_ns,
    pair_bps,
    trunk_bps,
)
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse, course_of

FAST, SLOW = LinkConditions(10, 1000, 800), LinkConditions(20, 100)
DOWN, UNLIMITED = LinkConditions(10, 1000, 800, up=False), LinkConditions(5)
THERE = course_of([(0, FAST), (50, SLOW), (70, UNLIMITED)])
BACK = course_of([(0, SLOW), (60, FAST)])


def path(there: LinkCourse = THERE, back: LinkCourse = BACK, port_bps: int | None = None) -> ChangingPath:
    return ChangingPath(there, back, port_bps, headers=True)


def test_a_line_has_the_latencies_of_both_directions_and_the_narrowest_rate_there() -> None:
    assert [path().line(at_ns) for at_ns in (0, 49, 50, 60, 70)] == [
        *[Line(800, 10, True, 20)] * 2,
        *(Line(100, 20, True, 20), Line(100, 20, True, 10), Line(None, 5, True, 10)),
    ]
    assert [path(port_bps=500).line(at_ns).rate_bps for at_ns in (0, 50, 70)] == [500, 100, 500]


def test_it_changes_when_one_of_its_directions_does() -> None:
    assert [path().next_change_ns(at_ns) for at_ns in (0, 49, 50, 60, 69, 70)] == [50, 50, 60, 70, 70, None]
    assert path(constant(FAST), constant(SLOW)).next_change_ns(0) is None


def test_a_course_that_begins_anew_changes_for_ever() -> None:
    course = course_of([(0, FAST), (3, SLOW)], period_ns=10)
    assert [next_change_ns(course, at_ns) for at_ns in (0, 3, 9, 10, 12, 13)] == [3, 10, 10, 13, 13, 20]


def test_what_is_unlimited_for_a_time_has_the_capacity_of_a_petabit() -> None:
    assert [pair_bps(each) for each in (FAST, SLOW, UNLIMITED)] == [800, 100, UNLIMITED_BPS]
    assert [trunk_bps(each) for each in (FAST, SLOW, UNLIMITED)] == [1000, 100, UNLIMITED_BPS]
    assert pair_range_bps(path()) == (100, UNLIMITED_BPS)
    assert pair_range_bps(path(course_of([(0, FAST), (5, SLOW)]))) == (100, 800)
    assert trunk_range_bps(path()) == (100, UNLIMITED_BPS)
    assert trunk_range_bps(path(course_of([(0, FAST), (5, SLOW)]))) == (100, 1000)
    assert trunk_range_bps(path(course_of([(0, UNLIMITED), (5, LinkConditions(5, None, 7))]))) is None


@pytest.mark.parametrize(
    ("there", "back", "fails"), [(FAST, SLOW, False), (DOWN, SLOW, True), (FAST, DOWN, True), (DOWN, DOWN, True)]
)
def test_it_fails_if_one_of_its_directions_ever_does(there: LinkConditions, back: LinkConditions, fails: bool) -> None:
    one, other = (course_of([(0, UNLIMITED), (5, each), (9, UNLIMITED)]) for each in (there, back))
    assert path(one, other).fails is fails


def test_what_is_sent_arrives_while_the_way_there_is_up() -> None:
    failing = path(course_of([(0, FAST), (5, DOWN), (9, FAST)]), constant(DOWN))
    assert [failing.is_up(at_ns) for at_ns in (4, 5, 8, 9)] == [True, False, False, True]
    assert [failing.up_ns(at_ns) for at_ns in (4, 5, 8, 9)] == [4, 9, 9, 9]
    assert path(course_of([(0, FAST), (5, DOWN)])).up_ns(6) is None
    # Down again and again, and longer than one change.
    longer = LinkConditions(7, up=False)
    again = path(course_of([(0, FAST), (5, DOWN), (7, longer)], period_ns=10))
    assert [again.up_ns(at_ns) for at_ns in (5, 8, 16)] == [10, 10, 20]
    assert path(course_of([(0, DOWN), (5, longer)], period_ns=10)).up_ns(3) is None


def test_an_acknowledgement_comes_if_the_way_back_was_up_when_it_was_sent() -> None:
    failing = path(back=course_of([(0, FAST), (50, DOWN), (80, FAST)]))
    # It takes 10 ns.
    assert [failing.answers(at_ns) for at_ns in (59, 60, 89, 90)] == [True, False, False, True]
