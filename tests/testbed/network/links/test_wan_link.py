"""A link's two directions: which is which, at every time, when changed, dilated and written down."""

from dataclasses import replace

from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse, course_of
from wanbed.testbed.network.links.wan_link import WanLink, link_of

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
