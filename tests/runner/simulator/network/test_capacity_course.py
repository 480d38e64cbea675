"""When a resource's capacity changes: at the link's times, a latency before at a trunk, and after what waits."""

from runner.simulator.event_queue import EventQueue
from runner.simulator.network.changing.capacity_course import CapacityCourse
from testbed.network.links.link_conditions import LinkConditions
from testbed.network.links.link_course import LinkCourse, course_of

MS = 1_000_000
LATENCY_MS = 10


def course(*rates: tuple[int, int], period_ms: int | None = None) -> LinkCourse:
    """A link of 10 ms with rates from times in milliseconds on."""
    return course_of(
        [(at_ms * MS, LinkConditions(LATENCY_MS * MS, rate_bps)) for at_ms, rate_bps in rates],
        period_ns=None if period_ms is None else period_ms * MS,
    )


class Followed:
    """A resource that follows a course, with so many bits waiting in it, and what its capacity became when."""

    def __init__(self, course: LinkCourse, *, is_trunk: bool = False) -> None:
        self.events = EventQueue()
        self.changes: list[tuple[float, int]] = []
        self.waiting_bits, self.rate_bps = 0, course.first.rate_bps or 0
        self.sends = True
        self.capacity = CapacityCourse(
            self.events,
            course,
            lambda conditions: conditions.rate_bps or 0,
            self._change,
            waiting=lambda _: (self.waiting_bits * 10**9, self.rate_bps),
            is_sending=lambda: self.sends,
            is_trunk=is_trunk,
        )

    def _change(self, bps: int, now_ns: int) -> None:
        self.changes.append((now_ns / MS, bps))
        self.rate_bps = bps

    def wake(self, at_ms: int) -> None:
        self.events.at(at_ms * MS, lambda now_ns, _: self.capacity.wake(now_ns), None)

    def run(self, until_ms: int = 1000) -> list[tuple[float, int]]:
        while self.events.next_ns is not None and self.events.next_ns <= until_ms * MS:
            self.events.handle_next_instant()
        return self.changes


def test_while_something_is_sent_it_changes_when_the_link_does() -> None:
    followed = Followed(course((0, 100), (50, 200), (70, 300)))
    followed.wake(0)
    assert followed.run() == [(50, 200), (70, 300)]
    assert followed.events.next_ns is None


def test_at_a_trunk_a_change_counts_for_what_left_a_latency_before() -> None:
    followed = Followed(course((0, 100), (50, 200), (70, 300)), is_trunk=True)
    followed.wake(0)
    assert followed.run() == [(40, 200), (60, 300)]


def test_while_nothing_is_sent_it_does_not_follow_and_catches_up_when_something_is() -> None:
    followed = Followed(course((0, 100), (50, 200), (70, 300), (90, 400)))
    followed.wake(0)
    followed.sends = False
    assert followed.run(85) == [(50, 200)]
    followed.sends = True
    followed.wake(86)
    assert followed.run() == [(50, 200), (86, 300), (90, 400)]


def test_to_wake_it_again_changes_nothing() -> None:
    followed = Followed(course((0, 100), (50, 200)))
    for at_ms in (0, 10, 50, 60):
        followed.wake(at_ms)
    assert followed.run() == [(50, 200)]


def test_a_course_that_begins_anew_is_followed_for_as_long_as_something_is_sent() -> None:
    followed = Followed(course((0, 100), (50, 200), period_ms=100))
    followed.wake(0)
    assert followed.run(260) == [(50, 200), (100, 100), (150, 200), (200, 100), (250, 200)]


def test_what_it_has_accepted_leaves_at_the_former_rate() -> None:
    followed = Followed(course((0, 100_000), (50, 200_000)))
    followed.wake(0)
    # At 100 bits a millisecond 700 bits take 7 ms.
    followed.waiting_bits = 700
    assert followed.run() == [(57, 200_000)]


def test_each_part_that_waits_leaves_at_the_rate_at_which_it_was_accepted() -> None:
    followed = Followed(course((0, 100_000), (50, 200_000), (54, 400_000)))
    followed.wake(0)
    followed.waiting_bits = 700
    followed.run(50)
    # At 54 ms of the first 700 bits 300 wait, and 800 more: 3 ms at the first rate, 4 at the second.
    followed.waiting_bits = 300 + 800
    assert followed.run() == [(57, 200_000), (61, 400_000)]


def test_a_capacity_that_is_caught_up_with_comes_after_those_that_are_pending() -> None:
    followed = Followed(course((0, 100_000), (50, 200_000), (60, 400_000)))
    followed.wake(0)
    followed.waiting_bits = 2000
    followed.run(40)
    followed.sends = False
    followed.run(55)
    followed.sends = True
    followed.wake(65)
    assert followed.run() == [(70, 200_000), (70, 400_000)]
