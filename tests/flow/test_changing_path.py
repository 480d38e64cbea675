"""A path whose link changes: its lines and capacities at any time, and when TCP goes on after an outage."""

import pytest

from wanbed.flow.changing_path import (
    UNLIMITED_BPS,
    CapacityCourse,
    ChangingPath,
    Retransmission,
    constant,
    late_ticks,
    next_change_ns,
    pair_bps,
    trunk_bps,
)
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.ground.errors import SimulationError
from wanbed.testbed.network.links.wan_link import LinkConditions, LinkCourse, course_of

FAST, SLOW = LinkConditions(10, 1000, 800), LinkConditions(20, 100)
FAILED, UNLIMITED = LinkConditions(10, 1000, 800, up=False), LinkConditions(5)
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


def test_what_is_unlimited_for_a_time_has_the_capacity_of_a_petabit() -> None:
    assert [pair_bps(each) for each in (FAST, SLOW, UNLIMITED)] == [800, 100, UNLIMITED_BPS]
    assert [trunk_bps(each) for each in (FAST, SLOW, UNLIMITED)] == [1000, 100, UNLIMITED_BPS]
    assert path().pair_range_bps == (100, UNLIMITED_BPS)
    assert path(course_of([(0, FAST), (5, SLOW)])).pair_range_bps == (100, 800)
    assert path().trunk_range_bps == (100, UNLIMITED_BPS)
    assert path(course_of([(0, FAST), (5, SLOW)])).trunk_range_bps == (100, 1000)
    assert path(course_of([(0, UNLIMITED), (5, LinkConditions(5, None, 7))])).trunk_range_bps is None


@pytest.mark.parametrize(
    ("there", "back", "fails"),
    [(FAST, SLOW, False), (FAILED, SLOW, True), (FAST, FAILED, True), (FAILED, FAILED, True)],
)
def test_it_fails_if_one_of_its_directions_ever_does(there: LinkConditions, back: LinkConditions, fails: bool) -> None:
    one, other = (course_of([(0, UNLIMITED), (5, each), (9, UNLIMITED)]) for each in (there, back))
    assert path(one, other).fails is fails


def test_what_is_sent_arrives_while_the_way_there_is_up() -> None:
    failing = path(course_of([(0, FAST), (5, FAILED), (9, FAST)]), constant(FAILED))
    assert [failing.is_up(at_ns) for at_ns in (4, 5, 8, 9)] == [True, False, False, True]
    assert [failing.up_ns(at_ns) for at_ns in (4, 5, 8, 9)] == [4, 9, 9, 9]
    assert path(course_of([(0, FAST), (5, FAILED)])).up_ns(6) is None
    # Down again and again, and longer than one change.
    longer = LinkConditions(7, up=False)
    again = path(course_of([(0, FAST), (5, FAILED), (7, longer)], period_ns=10))
    assert [again.up_ns(at_ns) for at_ns in (5, 8, 16)] == [10, 10, 20]
    assert path(course_of([(0, FAILED), (5, longer)], period_ns=10)).up_ns(3) is None


def test_an_acknowledgement_comes_if_the_way_back_was_up_when_it_was_sent() -> None:
    failing = path(back=course_of([(0, FAST), (50, FAILED), (80, FAST)]))
    # It takes 10 ns.
    assert [failing.answers(at_ns) for at_ns in (59, 60, 89, 90)] == [True, False, False, True]


MS = 1_000_000
LATENCY_MS = 10


def course(*rates: tuple[int, int], period_ms: int | None = None) -> LinkCourse:
    """A link of 10 ms with rates from times in milliseconds on."""
    return course_of(
        [(at_ms * MS, LinkConditions(LATENCY_MS * MS, rate_bps)) for at_ms, rate_bps in rates],
        period_ns=None if period_ms is None else period_ms * MS,
    )


class Followed:
    """A resource that follows a course, and what its capacity became when."""

    def __init__(self, course: LinkCourse) -> None:
        self.events = EventQueue()
        self.changes: list[tuple[float, int]] = []
        self.sends = True
        self.capacity = CapacityCourse(
            self.events, course, lambda conditions: conditions.rate_bps or 0, self._change, lambda: self.sends
        )

    def _change(self, bps: int, now_ns: int) -> None:
        self.changes.append((now_ns / MS, bps))

    def wake(self, at_ms: int) -> None:
        self.events.at(at_ms * MS, lambda now_ns, _: self.capacity.wake(now_ns), None)

    def run(self, until_ms: int = 1000) -> list[tuple[float, int]]:
        while self.events.next_ns is not None and self.events.next_ns <= until_ms * MS:
            self.events.handle_next_instant()
        return self.changes


def test_a_change_counts_for_what_left_a_latency_before() -> None:
    followed = Followed(course((0, 100), (50, 200), (70, 300)))
    followed.wake(0)
    assert followed.run() == [(40, 200), (60, 300)]
    assert followed.events.next_ns is None


def test_while_nothing_is_sent_it_does_not_follow_and_catches_up_when_something_is() -> None:
    followed = Followed(course((0, 100), (50, 200), (70, 300), (90, 400)))
    followed.wake(0)
    followed.sends = False
    assert followed.run(75) == [(40, 200)]
    followed.sends = True
    followed.wake(76)
    assert followed.run() == [(40, 200), (76, 300), (80, 400)]


def test_to_wake_it_again_changes_nothing() -> None:
    followed = Followed(course((0, 100), (50, 200)))
    for at_ms in (0, 10, 40, 60):
        followed.wake(at_ms)
    assert followed.run() == [(40, 200)]


def test_a_course_that_begins_anew_is_followed_for_as_long_as_something_is_sent() -> None:
    followed = Followed(course((0, 100), (50, 200), period_ms=100))
    followed.wake(0)
    assert followed.run(250) == [(40, 200), (90, 100), (140, 200), (190, 100), (240, 200)]


UP = LinkConditions(latency_ns=20 * MS)
DOWN = LinkConditions(latency_ns=20 * MS, up=False)


def down(begin_ms: int, end_ms: int) -> LinkCourse:
    return course_of([(0, UP), (begin_ms * MS, DOWN), (end_ms * MS, UP)])


def again_ms(there: LinkCourse, back: LinkCourse, *, acknowledged_ms: int = 0, dilation: float = 1.0) -> float:
    """When what left at 0 is sent again that arrives, with a timeout of 240 ms and a round trip of 40 ms."""
    retransmission = Retransmission(ChangingPath(there, back, None, headers=True), dilation)
    return retransmission.resumes_ns(0, acknowledged_ms * MS, 240 * MS, 40 * MS) / MS


def test_timeouts_double_and_are_late_by_what_the_timer_wheel_rounds() -> None:
    up = constant(UP)
    # A probe after 10 ticks of 10 ms, then 24, 48, 96 and 192 ticks: late by half a tick, of 63 and more ticks by 4.5.
    expected = [105, 105 + 245, 350 + 485, 835 + 1005, 1840 + 1965]
    assert [again_ms(down(1, end_ms), up) for end_ms in (100, 340, 800, 1800, 3600)] == expected
    assert [late_ticks(ticks) for ticks in (1, 62, 63, 503, 504, 4032)] == [0.5, 0.5, 4.5, 4.5, 32.5, 256.5]


def test_the_probe_follows_the_last_acknowledgement() -> None:
    assert again_ms(down(1, 100), constant(UP), acknowledged_ms=200) == 200 + 105


def test_the_acknowledgement_has_to_come_back() -> None:
    # Sent again after 350 ms, when the way there is up again, and acknowledged 20 ms later: too early for the way back.
    assert again_ms(down(1, 340), down(1, 375)) == 835
    assert again_ms(down(1, 340), down(1, 365)) == 350


def test_dilation_does_not_stretch_timers() -> None:
    course = down(1, 90)
    # 80 ms and two ticks of 5 ms of undilated time, late by half of one.
    assert again_ms(course, constant(UP), dilation=2.0) == pytest.approx(80 + 10 + 2.5, abs=0.5)


def test_the_kernel_gives_up() -> None:
    with pytest.raises(SimulationError, match=r"for longer than TCP sends again, 924\.6 s"):
        again_ms(down(1, 1_200_000), constant(UP))


def test_a_course_that_begins_anew_changes_for_ever_and_another_until_its_last_change() -> None:
    course = course_of([(0, UP), (3, DOWN)], period_ns=10)
    assert [next_change_ns(course, at_ns) for at_ns in (0, 2, 3, 9, 10, 12, 13)] == [3, 3, 10, 10, 13, 13, 20]
    assert next_change_ns(constant(UP), 0) is None
    assert next_change_ns(down(1, 2), 2 * MS) is None
