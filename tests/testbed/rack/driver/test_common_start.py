import time

from wanbed.testbed.rack.driver.common_start import LEAD_NS, CommonStart


def test_who_asks_shortly_after_another_one_is_given_the_same_instant() -> None:
    start = CommonStart()
    asked_ns = time.monotonic_ns()
    # A long lead, so that a busy machine does not let it pass.
    at_ns = start.at_ns(10**10)
    assert at_ns >= asked_ns + 10**10
    assert start.at_ns() == at_ns
    assert start.is_to_come()


def test_an_instant_that_has_nearly_come_is_followed_by_a_later_one() -> None:
    start = CommonStart()
    first_ns = start.at_ns(0)
    assert not start.is_to_come()
    asked_ns = time.monotonic_ns()
    assert start.at_ns() >= asked_ns + LEAD_NS > first_ns
