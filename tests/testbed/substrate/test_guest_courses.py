"""The host's side of courses that a guest follows by its own clock."""

import time
from typing import Any

from wanbed.testbed.kernel.changes.course_run import AppliedChange
from wanbed.testbed.substrate.guest_courses import GuestCourses

AHEAD_NS = -7 * 10**12


class Guest:
    """A guest whose clock is ``AHEAD_NS`` ahead, and which takes its time to answer that it is told when to begin."""

    def __init__(self, *slow_s: float) -> None:
        self.asked: list[str] = []
        self.begins_ns: list[int] = []
        self._slow_s = list(slow_s)

    def ask(self, request: str) -> dict[str, Any]:
        verb, _, argument = request.partition(" ")
        self.asked.append(verb)
        if verb == "clock":
            return {"now_ns": time.monotonic_ns() + AHEAD_NS}
        if verb == "begin":
            self.begins_ns.append(int(argument))
            time.sleep(self._slow_s.pop(0) if self._slow_s else 0)
        made = [["east", "west", 5, 7], ["east", "west", 9, None]]
        return {"changes": made, "real_time_priority": True} if verb == "end" else {}


def test_the_guest_is_told_the_begin_on_its_own_clock_before_it_comes() -> None:
    guest = Guest()
    courses = GuestCourses(guest.ask)
    asked_ns = time.monotonic_ns()
    begin_ns = courses.begin()
    assert asked_ns < begin_ns <= time.monotonic_ns()
    record = courses.end()
    assert abs(guest.begins_ns[-1] - AHEAD_NS - begin_ns) <= record.clock_error_ns
    assert record.begin_ns == begin_ns
    assert record.changes == (AppliedChange("east", "west", 5, 7), AppliedChange("east", "west", 9, None))
    assert record.real_time_priority


def test_a_guest_that_answers_after_the_begin_is_told_a_later_one() -> None:
    guest = Guest(0.06)
    courses = GuestCourses(guest.ask)
    begin_ns = courses.begin()
    assert len(guest.begins_ns) >= 2
    assert abs(guest.begins_ns[-1] - AHEAD_NS - begin_ns) <= courses.end().clock_error_ns


def test_states_are_held_by_their_time() -> None:
    guest = Guest()
    GuestCourses(guest.ask).hold(3)
    assert guest.asked == ["hold"]
