"""The line is within the stated error, however asymmetric the paths and however far apart the clocks."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.rack.clock_line import ClockExchange, fit_line

MS = 1_000_000
S = 1000 * MS


class Clocks:
    """A machine's clock that is ``offset_ns`` ahead of the driver's at 0 and gains ``drift``, behind jittery paths."""

    def __init__(self, offset_ns: int, drift: float, jitter_ns: int, seed: int) -> None:
        self.offset_ns, self.drift = offset_ns, drift
        self._jitter_ns = jitter_ns
        self._random = random.Random(seed)

    def machine_ns(self, driver_ns: int) -> int:
        return driver_ns + self.offset_ns + round(self.drift * driver_ns)

    def exchange(self, asked_ns: int, delay_ns: int) -> ClockExchange:
        there, back = (delay_ns + round(self._random.expovariate(1 / self._jitter_ns)) for _ in range(2))
        return ClockExchange(asked_ns, self.machine_ns(asked_ns + there), asked_ns + there + back)

    def bursts(self, count: int, apart_ns: int, delay_ns: int, size: int = 8) -> list[list[ClockExchange]]:
        return [
            [self.exchange(number * apart_ns + each * MS, delay_ns) for each in range(size)] for number in range(count)
        ]


@given(
    clocks=st.builds(
        Clocks,
        st.integers(-100 * MS, 100 * MS),
        st.floats(-50e-6, 50e-6),
        st.integers(1_000, 5 * MS),
        st.integers(0, 2**32),
    ),
    delay_ns=st.integers(0, 5 * MS),
    count=st.integers(2, 12),
)
def test_every_moment_of_a_trial_is_known_within_the_stated_error(clocks: Clocks, delay_ns: int, count: int) -> None:
    line = fit_line(clocks.bursts(count, S, delay_ns))
    for moment_ns in range(20 * MS, (count - 1) * S, S // 7):
        assert abs(line.driver_ns(clocks.machine_ns(moment_ns)) - moment_ns) <= line.error_ns


@given(seed=st.integers(0, 2**32))
def test_over_a_minute_the_drift_itself_is_found(seed: int) -> None:
    clocks = Clocks(100 * MS, 50e-6, MS // 10, seed)
    line = fit_line(clocks.bursts(60, S, MS // 10))
    assert line.drift * 1e6 == pytest.approx(50, abs=10)
    assert line.error_ns < 500_000
    assert line.offset_at_ns(0) == pytest.approx(100 * MS, abs=line.error_ns)


def test_exact_exchanges_give_an_offset_that_is_as_good_as_clocks_are_steady() -> None:
    line = fit_line([[ClockExchange(0, 5 * S, 0)], [ClockExchange(S, 6 * S, S)]])
    assert line.offset_ns == pytest.approx(5 * S, abs=1e-3)
    assert line.facts() == {"offset_ns": 5 * S, "drift_ppm": 0.0, "error_ns": 104}


def test_a_late_exchange_changes_nothing() -> None:
    quick = [[ClockExchange(at, at + 5, at + 10)] for at in (0, S, 2 * S)]
    late = ClockExchange(S, S + 9 * MS, S + 10 * MS)
    with_late, without = fit_line([quick[0], [late], quick[2]]), fit_line([quick[0], quick[2]])
    assert with_late.facts() == without.facts()
    assert fit_line([quick[0], [late, *quick[1]], quick[2]]).error_ns <= without.error_ns


def half_a_millisecond_away(seed: int) -> Clocks:
    return Clocks(-100 * MS, -50e-6, MS // 10, seed)


def test_where_round_trips_take_half_a_millisecond_a_fifth_of_one_is_stated_but_for_rare_paths() -> None:
    lines = [fit_line(half_a_millisecond_away(seed).bursts(10, S, 15 * MS // 100)) for seed in range(1000)]
    assert sum(line.error_ns >= 200_000 for line in lines) <= 5


@given(seed=st.integers(0, 2**32))
def test_where_round_trips_take_half_a_millisecond_what_is_stated_is_true(seed: int) -> None:
    clocks = half_a_millisecond_away(seed)
    line = fit_line(clocks.bursts(10, S, 15 * MS // 100))
    for moment_ns in range(0, 9 * S, S // 7):
        assert abs(line.driver_ns(clocks.machine_ns(moment_ns)) - moment_ns) <= line.error_ns


def test_quick_requests_and_quick_answers_tell_more_together_than_the_quickest_round_trip() -> None:
    # Either way takes 10 us or 90 us, and never both ways the same.
    there = [ClockExchange(at, at + 10_000, at + 100_000) for at in (0, S)]
    back = [ClockExchange(at, at + 90_000, at + 100_000) for at in (MS, S + MS)]
    assert fit_line([[each] for each in (there[0], back[0], there[1], back[1])]).error_ns < 11_000
    assert fit_line([[each] for each in there]).error_ns >= 50_000


@given(steered_ppm=st.sampled_from([-300, -30, 30, 300]), seed=st.integers(0, 2**32))
def test_a_clock_that_is_steered_during_the_trial_is_stated_as_known_less_well(steered_ppm: int, seed: int) -> None:
    clocks = Clocks(0, 0, MS // 100, seed)
    plain = clocks.bursts(11, S, MS // 100)

    def steered_ns(driver_ns: int) -> int:
        return max(0, driver_ns - 5 * S) * steered_ppm // 1_000_000

    bent = [
        [
            ClockExchange(each.asked_ns, each.machine_ns + steered_ns(each.machine_ns), each.answered_ns)
            for each in burst
        ]
        for burst in plain
    ]
    line = fit_line(bent)
    # Between the lines before and after it there is a corner of 5 s times the change, which one line misses.
    assert line.error_ns > abs(steered_ppm) * 1_000
    for moment_ns in range(0, 11 * S, S):
        assert abs(line.driver_ns(clocks.machine_ns(moment_ns) + steered_ns(moment_ns)) - moment_ns) <= line.error_ns


def test_times_of_a_machine_that_has_been_up_for_years_keep_their_nanoseconds() -> None:
    start_ns = 10**17 + 1
    line = fit_line([[ClockExchange(at, at + 77, at)] for at in (start_ns, start_ns + S)])
    assert line.driver_ns(start_ns + 77 + 12_345) == start_ns + 12_345
