from itertools import islice, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import Change, LinkCourse, course_of
from wanbed.testbed.network.links.wan_link import WanLink

NEAR, FAR, DOWN = LinkConditions(10_000_000, 10**9), LinkConditions(40_000_000, 10**8), LinkConditions(up=False)


@st.composite
def courses(draw: st.DrawFn) -> LinkCourse:
    times_ns = [0, *sorted(draw(st.sets(st.integers(1, 1000), max_size=8)))]
    conditions = [draw(st.sampled_from((NEAR, FAR, DOWN))) for _ in times_ns]
    period_ns = draw(st.none() | st.integers(times_ns[-1] + 1, 2000))
    return course_of(zip(times_ns, conditions, strict=True), period_ns=period_ns)


def test_each_change_holds_until_the_next_and_the_first_before_training() -> None:
    course = course_of([(0, NEAR), (100, FAR), (300, DOWN)])
    assert [course.at(time_ns) for time_ns in (-5, 0, 99, 100, 299, 300, 10**12)] == [
        NEAR,
        NEAR,
        NEAR,
        FAR,
        FAR,
        DOWN,
        DOWN,
    ]


def test_a_course_with_a_period_begins_anew_after_it() -> None:
    course = course_of([(0, NEAR), (100, FAR)], period_ns=250)
    assert list(islice(course.changes_after(0), 4)) == [
        Change(100, FAR),
        Change(250, NEAR),
        Change(350, FAR),
        Change(500, NEAR),
    ]
    assert course.at(349) == NEAR
    assert course.at(350) == FAR


def test_a_repeated_course_whose_ends_are_alike_changes_nothing_between_them() -> None:
    course = course_of([(0, NEAR), (100, FAR), (200, NEAR)], period_ns=250)
    assert list(islice(course.changes_after(-1), 3)) == [Change(100, FAR), Change(200, NEAR), Change(350, FAR)]


@pytest.mark.parametrize(
    ("times_ns", "period_ns"), [([], None), ([5], None), ([0, 0], None), ([0, 7, 6], None), ([0, 7], 7)]
)
def test_times_begin_at_0_and_rise_and_end_before_the_period(times_ns: list[int], period_ns: int | None) -> None:
    conditions = (NEAR, FAR, DOWN)
    with pytest.raises(ValueError, match="course"):
        LinkCourse(
            tuple(Change(at_ns, each) for at_ns, each in zip(times_ns, conditions, strict=False)), period_ns=period_ns
        )


@given(courses(), st.integers(0, 5000))
def test_the_changes_after_a_time_tell_the_conditions_at_every_later_one(course: LinkCourse, begin_ns: int) -> None:
    held = course.at(begin_ns)
    told = list(islice(course.changes_after(begin_ns), 20))
    for change in told:
        assert change.at_ns > begin_ns
        assert course.at(change.at_ns - 1) == held
        assert course.at(change.at_ns) == change.conditions != held
        held = change.conditions
    assert all(one.at_ns < other.at_ns for one, other in pairwise(told))


@given(courses(), st.sampled_from([1, 2, 10]), st.integers(0, 5000))
def test_a_dilated_link_is_as_the_link_was_that_much_earlier(course: LinkCourse, factor: int, time_ns: int) -> None:
    link = WanLink(("east", "west"), course.first, None, (course, course))
    for (_, conditions), (_, earlier) in zip(
        link.dilated(factor).at(time_ns * factor).directions, link.at(time_ns).directions, strict=True
    ):
        assert conditions == earlier.dilated(factor)


@given(courses())
def test_the_distinct_conditions_are_those_that_hold_at_some_time(course: LinkCourse) -> None:
    assert course.distinct[0] == course.first
    assert set(course.distinct) == {change.conditions for change in course.changes}
    assume(len(course.changes) > 1)
    assert all(one.conditions != other.conditions for one, other in pairwise(course.changes))


def test_a_direction_that_changes_has_its_course_in_the_manifest() -> None:
    course = course_of([(0, NEAR), (100, DOWN)], source="events")
    link = WanLink(("east", "west"), NEAR, None, (None, course))
    there, back = link.documents()
    assert "course" not in there
    assert back["course"] == {
        "source": "events",
        "synthetic": False,
        "period_ns": None,
        "changes": 1,
        "last_change_ns": 100,
        "sha256": course.digest,
    }
    assert DOWN.document()["up"] is False
    assert link.course_by_ends == {("west", "east"): course}
