import time

from wanbed.testbed.rack.driver.machine_clock import MachineClock

AHEAD_NS = 7_000_000_000


def test_the_clock_of_a_machine_is_known_from_the_begin_to_the_end_of_a_trial() -> None:
    clock = MachineClock(lambda: time.monotonic_ns() + AHEAD_NS)
    clock.meanwhile()
    clock.begin()
    clock.meanwhile()
    line = clock.line()
    assert abs(clock.ahead_ns - AHEAD_NS) < 10_000_000
    assert abs(line.offset_ns - AHEAD_NS) <= line.error_ns


def test_signs_of_life_between_trials_say_nothing_of_the_next_one() -> None:
    jumps = [0, AHEAD_NS]
    clock = MachineClock(lambda: time.monotonic_ns() + jumps[0])
    clock.begin()
    clock.end()
    clock.meanwhile()
    jumps.pop(0)
    clock.begin()
    line = clock.line()
    assert abs(line.offset_ns - AHEAD_NS) <= line.error_ns
