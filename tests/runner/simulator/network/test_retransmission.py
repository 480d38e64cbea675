"""A transfer goes on with the first retransmission that the link delivers, and whose acknowledgement comes back."""

import pytest

from wanbed.runner.simulator.deadlock import SimulationError
from wanbed.runner.simulator.network.changing.changing_path import ChangingPath, constant, next_change_ns
from wanbed.runner.simulator.network.changing.retransmission import Retransmission, late_ticks
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse, course_of

MS = 10**6
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


def test_the_next_change_of_a_course_that_begins_anew() -> None:
    course = course_of([(0, UP), (3, DOWN)], period_ns=10)
    assert [next_change_ns(course, at_ns) for at_ns in (0, 2, 3, 9, 10, 13)] == [3, 3, 10, 10, 13, 20]
    assert next_change_ns(constant(UP), 0) is None
    assert next_change_ns(down(1, 2), 2 * MS) is None
