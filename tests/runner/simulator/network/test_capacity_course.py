"""When the capacity of a resource changes for what is sent: a latency before the link does."""

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.changing.capacity_course import CapacityCourse
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse, course_of

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
