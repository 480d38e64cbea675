import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.compute.device.device_clock import DeviceClock, Sighting

SECOND_NS = 1_000_000_000

widths_ns = st.integers(0, 50_000)
speeds = st.floats(1 - 1e-4, 1 + 1e-4)
lengths_ns = st.integers(1_000_000, 100 * SECOND_NS)
begins_ns = st.integers(0, 10**16)


def sighting(moment_ns: int, early_ns: int, late_ns: int) -> Sighting:
    return Sighting(moment_ns - early_ns, moment_ns + late_ns)


@given(begins_ns, lengths_ns, speeds, st.tuples(widths_ns, widths_ns, widths_ns, widths_ns), st.floats(0, 1))
def test_a_converted_time_is_as_exact_as_the_worse_sighting(
    begin_ns: int, length_ns: int, speed: float, widths: tuple[int, int, int, int], share: float
) -> None:
    early, late = sighting(begin_ns, *widths[:2]), sighting(begin_ns + length_ns, *widths[2:])
    clock = DeviceClock(early, late, length_ns * speed)
    moment_ns = round(share * length_ns)
    assert abs(clock.host_ns(moment_ns * speed) - (begin_ns + moment_ns)) <= clock.error_ns + 2


@given(lengths_ns, widths_ns, st.lists(st.integers(0, 10**6), min_size=2, max_size=20))
def test_what_came_one_after_the_other_never_overlaps(length_ns: int, width_ns: int, cuts: list[int]) -> None:
    clock = DeviceClock(sighting(SECOND_NS, width_ns, 0), sighting(SECOND_NS + length_ns, 0, width_ns), length_ns)
    moments_ns = sorted(cut / 10**6 * length_ns for cut in cuts)
    seen = (0, 10**18)
    lines = [clock.interval_ns(start, end, seen) for start, end in itertools.pairwise(moments_ns)]
    for (_, end_ns), (start_ns, _) in itertools.pairwise(lines):
        assert end_ns <= start_ns


@given(st.integers(0, SECOND_NS), st.integers(0, SECOND_NS), st.integers(0, SECOND_NS), st.integers(0, SECOND_NS))
def test_nothing_is_reported_outside_of_what_the_host_saw(a: int, b: int, c: int, d: int) -> None:
    clock = DeviceClock(Sighting(0, 100), Sighting(SECOND_NS, SECOND_NS), SECOND_NS)
    low_ns, high_ns = sorted((a, b))
    start_ns, end_ns = clock.interval_ns(*sorted((c, d)), (low_ns, high_ns))
    assert low_ns <= start_ns <= end_ns <= high_ns


@pytest.mark.parametrize(("end_ns", "elapsed_ns"), [(100, 1.0), (200, 0.0)])
def test_one_moment_is_no_stretch_of_time(end_ns: int, elapsed_ns: float) -> None:
    with pytest.raises(ValueError, match="twice at the same moment"):
        DeviceClock(Sighting(100, 100), Sighting(end_ns, end_ns), elapsed_ns)


def test_a_sighting_does_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="latest_ns: 1 is before"):
        Sighting(2, 1)
