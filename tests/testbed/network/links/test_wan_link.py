"""Conditions, courses and both directions of a link: at every time, when changed, dilated and written down."""

from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.ground.impairments import Impairments
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.links.link_spec import FiguresSpec, conditions_of
from wanbed.testbed.network.links.wan_link import (
    Change,
    LinkConditions,
    LinkCourse,
    WanLink,
    course_of,
    link_of,
    longest_outage_ns,
)

LINK = LinkConditions(10_000_000, 10**9, 10**8, Impairments(jitter_ns=1_000_000, loss=0.25))


def test_values_replace_the_fields_that_they_name() -> None:
    assert LINK.with_values({}) == LINK
    assert LINK.with_values({"latency": 7, "rate": None, "node_pair_rate": 5, "up": False}) == LinkConditions(
        7, None, 5, LINK.impairments, up=False
    )
    assert LINK.with_values({"loss": 0.5}) == LinkConditions(10_000_000, 10**9, 10**8, Impairments(1_000_000, 0.5))
    assert LINK.with_values({"jitter": 3}) == LinkConditions(10_000_000, 10**9, 10**8, Impairments(3, 0.25))


def test_only_what_is_written_replaces_what_was_there() -> None:
    spec = parse_model(FiguresSpec, {"rate": "unlimited", "loss": "50%"}, "wan")
    assert conditions_of(spec, LINK) == LinkConditions(10_000_000, None, 10**8, Impairments(1_000_000, 0.5))
    assert conditions_of(spec) == LinkConditions(impairments=Impairments(loss=0.5))


def test_in_dilated_time_delays_are_longer_and_rates_smaller_but_a_bit_a_second_at_least() -> None:
    assert LINK.dilated(4) == LinkConditions(40_000_000, 250_000_000, 25_000_000, Impairments(4_000_000, 0.25))
    assert LinkConditions(3, 5, 1).dilated(2.5) == LinkConditions(8, 2, 1)
    assert LinkConditions(0, None, None).dilated(2) == LinkConditions()


@pytest.mark.parametrize(
    ("rate", "node_pair_rate", "pair"),
    [(None, None, None), (5, None, 5), (None, 4, 4), (5, 4, 4), (3, 4, 3), (0, 4, 0)],
)
def test_a_node_pair_has_the_smaller_of_its_own_rate_and_the_trunks(
    rate: int | None, node_pair_rate: int | None, pair: int | None
) -> None:
    assert LinkConditions(0, rate, node_pair_rate).pair_rate_bps == pair


def test_nothing_arrives_over_a_link_that_is_down_or_loses_everything() -> None:
    assert LINK.arrives
    assert LinkConditions(impairments=Impairments(loss=0.999)).arrives
    assert not LinkConditions(impairments=Impairments(loss=1.0)).arrives
    assert not LinkConditions(up=False).arrives


def test_a_document_has_every_field_and_says_so_if_a_link_is_down() -> None:
    document = {"latency_ns": 10_000_000, "rate_bps": 10**9, "node_pair_rate_bps": 10**8}
    impairments = {"jitter_ns": 1_000_000, "loss": 0.25}
    assert LINK.document() == document | impairments
    assert LINK.with_values({"up": False}).document() == document | impairments | {"up": False}


def test_a_delay_is_60_s_at_most() -> None:
    assert parse_model(FiguresSpec, {"latency": "60s"}, "wan").latency == 60 * 10**9
    with pytest.raises(InputError, match="60001ms is above the 60s that a link may have"):
        parse_model(FiguresSpec, {"latency": "60001ms"}, "wan")


NEAR, FAR, OFF = LinkConditions(10_000_000, 10**9), LinkConditions(40_000_000, 10**8), LinkConditions(up=False)


@st.composite
def courses(draw: st.DrawFn) -> LinkCourse:
    times_ns = [0, *sorted(draw(st.sets(st.integers(1, 1000), max_size=8)))]
    conditions = [draw(st.sampled_from((NEAR, FAR, OFF))) for _ in times_ns]
    period_ns = draw(st.none() | st.integers(times_ns[-1] + 1, 2000))
    return course_of(zip(times_ns, conditions, strict=True), period_ns=period_ns)


def test_each_change_holds_until_the_next_and_the_first_before_training() -> None:
    course = course_of([(0, NEAR), (100, FAR), (300, OFF)])
    assert [course.at(time_ns) for time_ns in (-5, 0, 99, 100, 299, 300, 10**12)] == [
        NEAR,
        NEAR,
        NEAR,
        FAR,
        FAR,
        OFF,
        OFF,
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
    conditions = (NEAR, FAR, OFF)
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
    course = course_of([(0, NEAR), (100, OFF)], source="events")
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
    assert OFF.document()["up"] is False
    assert link.course_by_ends == {("west", "east"): course}


ENDS = ("east", "west")
FAST, SLOW, DOWN = LinkConditions(10, 1000), LinkConditions(20, 100), LinkConditions(10, 1000, up=False)
COURSE = course_of([(0, FAST), (5, SLOW), (8, DOWN), (9, FAST)], period_ns=20, source="events")


def test_a_link_has_one_set_of_conditions_or_one_for_each_direction() -> None:
    assert link_of(ENDS, FAST, FAST) == WanLink(ENDS, FAST)
    assert link_of(ENDS, FAST, FAST).directions == ((ENDS, FAST), (("west", "east"), FAST))
    both = link_of(ENDS, FAST, SLOW)
    assert both.back == SLOW
    assert both.directions == ((ENDS, FAST), (("west", "east"), SLOW))


def test_a_direction_that_changes_is_at_each_time_as_its_course_says() -> None:
    link = link_of(ENDS, SLOW, FAST, (None, COURSE))
    assert link.course_by_ends == {("west", "east"): COURSE}
    assert [link.at(time_ns) for time_ns in (0, 5, 8, 29)] == [
        link_of(ENDS, SLOW, FAST),
        link_of(ENDS, SLOW, SLOW),
        link_of(ENDS, SLOW, DOWN),
        link_of(ENDS, SLOW, FAST),
    ]


def test_every_conditions_are_those_of_each_time_or_none_of_a_constant_direction() -> None:
    link = link_of(ENDS, FAST, SLOW, (COURSE, None))
    assert list(link.every_conditions()) == [
        (ENDS, FAST, 0),
        (ENDS, SLOW, 5),
        (ENDS, DOWN, 8),
        (ENDS, FAST, 9),
        (("west", "east"), SLOW, None),
    ]


def test_a_change_is_made_to_both_directions_at_every_time() -> None:
    def doubled(conditions: LinkConditions) -> LinkConditions:
        return replace(conditions, latency_ns=2 * conditions.latency_ns)

    changed = link_of(ENDS, FAST, SLOW, (COURSE, None)).changed(doubled)
    assert [conditions.latency_ns for _, conditions in changed.directions] == [20, 40]
    assert [conditions.latency_ns for _, conditions, _ in changed.every_conditions()] == [20, 40, 20, 20, 40]
    assert changed.courses[0] is not None
    assert changed.courses[0].period_ns == 20


def test_in_dilated_time_changes_come_later_by_the_factor() -> None:
    dilated = link_of(ENDS, FAST, SLOW, (COURSE, None)).dilated(2)
    assert dilated.directions == ((ENDS, FAST.dilated(2)), (("west", "east"), SLOW.dilated(2)))
    (course, back) = dilated.courses
    assert back is None
    assert course is not None
    assert [(change.at_ns, change.conditions) for change in course.changes] == [
        (0, FAST.dilated(2)),
        (10, SLOW.dilated(2)),
        (16, DOWN.dilated(2)),
        (18, FAST.dilated(2)),
    ]
    assert course.period_ns == 40


def test_a_document_has_one_entry_for_directions_that_are_alike() -> None:
    def course(given: LinkCourse | None) -> dict[str, object]:
        return {} if given is None else {"course": given.document()}

    assert link_of(ENDS, FAST, FAST).documents() == [{"between": ["east", "west"], **FAST.document()}]
    assert link_of(ENDS, FAST, FAST, (COURSE, COURSE)).documents() == [
        {"between": ["east", "west"], **FAST.document(), **course(COURSE)}
    ]
    for back, courses in ((SLOW, (None, None)), (FAST, (COURSE, None)), (SLOW, (COURSE, COURSE))):
        assert link_of(ENDS, FAST, back, courses).documents() == [
            {"from": "east", "to": "west", **FAST.document(), **course(courses[0])},
            {"from": "west", "to": "east", **back.document(), **course(courses[1])},
        ]


UP, UP_SLOWLY = LinkConditions(10_000_000, 10**9), LinkConditions(10_000_000, 10**6)

OUT, OUT_TOO = LinkConditions(up=False), LinkConditions(20_000_000, up=False)


def outage_ns(there: LinkCourse | None, back: LinkCourse | None) -> int:
    return longest_outage_ns(WanLink(("east", "west"), UP, courses=(there, back)))


def test_a_link_that_is_never_down_has_none() -> None:
    steps = course_of([(0, UP), (100, UP_SLOWLY), (300, UP)])
    assert outage_ns(None, None) == outage_ns(steps, None) == outage_ns(steps, steps) == 0


def test_the_longest_of_several_counts() -> None:
    course = course_of([(0, UP), (100, OUT), (150, UP), (200, OUT), (290, UP_SLOWLY), (400, OUT), (420, UP)])
    assert outage_ns(course, course) == outage_ns(None, course) == 90


def test_an_outage_goes_on_while_other_conditions_change() -> None:
    course = course_of([(0, UP), (100, OUT), (150, OUT_TOO), (400, UP)])
    assert outage_ns(course, course) == 300


def test_outages_of_two_different_directions_may_follow_each_other() -> None:
    there = course_of([(0, UP), (100, OUT), (150, UP)])
    back = course_of([(0, UP), (140, OUT), (240, UP)])
    assert outage_ns(there, back) == 150


def test_an_outage_at_the_end_of_a_period_ends_with_it() -> None:
    assert outage_ns(course_of([(0, UP), (100, OUT)], period_ns=130), None) == 30
