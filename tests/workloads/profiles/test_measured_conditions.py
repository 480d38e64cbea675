import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.profiles.measured_conditions import MeasuredConditions, ceiling_of, measured_time


def test_the_spread_is_the_distance_of_the_quartiles_over_the_median() -> None:
    found = measured_time([104, 100, 98, 102, 100, 96, 900])
    assert found.median_ns == 100
    assert found.spread == pytest.approx((103 - 99) / 100)
    assert found.repeats_ns == (104, 100, 98, 102, 100, 96, 900)


@pytest.mark.parametrize(("wide_ns", "steady"), [(101, True), (103, True), (104, False)])
def test_a_spread_above_three_percent_is_not_steady(wide_ns: int, steady: bool) -> None:
    assert measured_time([100] * 5 + [wide_ns] * 4).steady is steady


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=20))
def test_any_times_have_a_median_among_them_and_a_spread(times_ns: list[int]) -> None:
    found = measured_time(times_ns)
    assert found.median_ns in times_ns
    assert found.spread >= 0


def test_the_ceiling_is_two_cubes_in_the_median_time() -> None:
    assert ceiling_of(1000, [2_000_000_000] * 7).flops_per_s == pytest.approx(1e9)


def test_conditions_of_files_without_kernels_and_clocks_are_read() -> None:
    state = {"clock_hz": 1, "memory_clock_hz": None, "temperature_c": None, "power_w": None}
    conditions = MeasuredConditions.model_validate(
        {
            "measured_at": "2026-01-01T00:00:00+00:00",
            "driver": None,
            "versions": {},
            "threads": 1,
            "ceiling": ceiling_of(8, [1] * 7).model_dump(exclude={"clocks"}),
            "before": state,
            "after": {**state, "throttled": ("thermal limit",)},
        }
    )
    assert (conditions.deterministic, conditions.during, conditions.ceiling.clocks) == (None, None, None)
    assert conditions.throttled == ("thermal limit",)
