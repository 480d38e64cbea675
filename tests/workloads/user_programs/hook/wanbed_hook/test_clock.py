import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.user_programs.hook.wanbed_hook.clock import ProfilerClock, Sighting


@given(st.integers(0, 10**18), st.integers(1, 10**12), st.integers(0, 10**12), st.integers(0, 10**6))
def test_a_clock_with_an_offset_is_converted_within_its_error(
    offset_ns: int, length_ns: int, at_ns: int, error_ns: int
) -> None:
    first = [Sighting(0, 2 * error_ns, offset_ns + error_ns)]
    last = [Sighting(length_ns, length_ns + 2 * error_ns, offset_ns + error_ns + length_ns)]
    clock = ProfilerClock(first, last)
    assert clock.error_ns == error_ns
    assert abs(clock.monotonic_ns(offset_ns + at_ns) - at_ns) <= error_ns


def test_the_closest_sighting_counts() -> None:
    clock = ProfilerClock(
        [Sighting(0, 100, 5), Sighting(100, 104, 1_102)], [Sighting(200, 230, 9), Sighting(300, 302, 1_301)]
    )
    assert (clock.monotonic_ns(1_102), clock.monotonic_ns(1_301), clock.error_ns) == (102, 301, 2)


def test_a_clock_of_another_speed_is_interpolated() -> None:
    clock = ProfilerClock([Sighting(0, 0, 0)], [Sighting(1_000, 1_000, 2_000)])
    assert [clock.monotonic_ns(each) for each in (0, 500, 2_000, 3_000)] == [0, 250, 1_000, 1_500]


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(ValueError, match="did not advance"):
        ProfilerClock([Sighting(0, 1, 5)], [Sighting(9, 10, 5)])
