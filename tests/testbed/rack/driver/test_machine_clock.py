import time

from wanbed.testbed.rack.clock_line import ClockLine
from wanbed.testbed.rack.driver.machine_clock import MachineClock, TimeLine

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


S = 1_000_000_000


def test_a_time_that_a_machine_logged_is_put_where_the_driver_would_have_seen_it() -> None:
    # The machine's clock is 5 s and 300 ns ahead, and gains 10 ppm; its epoch was set for 5 s.
    line = ClockLine(at_ns=100 * S, offset_ns=5 * S + 300, drift=1e-5, error_ns=40)
    time_line = TimeLine(100 * S, {"east-0": "node0"}, {"node0": line}, {"node0": 5 * S})
    assert time_line.trial_ns("east-0", 300) == 0
    assert time_line.trial_ns("east-0", 2 * S + 20_000 + 300) == 2 * S
    assert time_line.error_ns("east-0") == 40
    assert time_line.facts() == {"node0": {"offset_ns": 5 * S + 300, "drift_ppm": 10.0, "error_ns": 40}}
