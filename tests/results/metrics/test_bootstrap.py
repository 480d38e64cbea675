from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.results.metrics import nearest_rank
from wanbed.results.metrics.bootstrap import (
    ENOUGH_REPEATS,
    FEWEST_REPEATS,
    RESAMPLES,
    median_interval,
    median_of_medians,
    moment_intervals,
    percentile_intervals,
    ratio_interval,
    resampled_medians,
)
from wanbed.results.metrics.intervals import Numbers

times_s = st.floats(0.001, 1000)

trials = st.lists(st.lists(times_s, min_size=1, max_size=4), min_size=3, max_size=6)


def test_the_statistic_is_the_median_over_repeats_of_each_repeats_median() -> None:
    assert median_of_medians([[1.0, 2.0, 9.0], [4.0], [3.0, 5.0]]) == 4.0
    assert median_of_medians([[], [2.0]]) == 2.0
    assert median_of_medians([[], []]) is None


@pytest.mark.parametrize("few", [[], [[1.0]], [[1.0] * 50], [[1.0, 1.2], [1.1] * 50], [[1.0], [1.1], []]])
def test_below_three_repeats_there_is_no_interval_however_many_iterations(few: list[list[float]]) -> None:
    enough = [[1.0], [1.1], [1.2]]
    assert median_interval(few) is None
    assert ratio_interval(few, enough) is None
    assert ratio_interval(enough, few) is None
    assert median_interval(enough) is not None
    assert ratio_interval(enough, enough) is not None


def test_an_interval_without_scatter_is_a_point() -> None:
    assert median_interval([[2.0, 2.0], [2.0], [2.0]]) == (2.0, 2.0)
    assert ratio_interval([[2.0, 2.0]] * 3, [[3.0]] * 3) == (1.5, 1.5)


@given(trials)
@settings(max_examples=25, deadline=None)
def test_an_interval_lies_within_what_was_measured(measured: list[list[float]]) -> None:
    interval = median_interval(measured)
    assert interval is not None
    every = [time_s for times in measured for time_s in times]
    assert min(every) <= interval[0] <= interval[1] <= max(every)


@given(trials, st.floats(1.01, 4.0))
@settings(max_examples=25, deadline=None)
def test_a_pure_slow_down_multiplies_the_interval_by_its_factor(measured: list[list[float]], factor: float) -> None:
    slower = [[factor * time_s for time_s in times] for times in measured]
    same, slow = ratio_interval(measured, measured), ratio_interval(measured, slower)
    assert same is not None
    assert slow is not None
    assert slow == pytest.approx((factor * same[0], factor * same[1]))


def test_the_same_seed_gives_the_same_interval() -> None:
    measured = [list(row) for row in np.random.default_rng(1).normal(1, 0.1, (5, 3))]
    assert median_interval(measured, seed=3) == median_interval(measured, seed=3)
    assert ratio_interval(measured, measured, seed=3) == ratio_interval(measured, measured, seed=3)
    one, other = (resampled_medians(measured, np.random.default_rng(seed)) for seed in (3, 4))
    assert not np.array_equal(one, other)


def test_repeats_that_differ_widen_the_interval_more_than_iterations_that_do() -> None:
    between = median_interval([[1.0] * 4, [2.0] * 4, [3.0] * 4, [4.0] * 4, [5.0] * 4])
    within = median_interval([[1.0, 2.0, 4.0, 5.0, 3.0]] * 5)
    assert between is not None
    assert within is not None
    assert between[1] - between[0] > within[1] - within[0]


def test_the_distribution_is_the_one_worked_out_on_paper() -> None:
    """Of two repeats of one iteration, a resample has both the low (1/4), both the high (1/4), or one of each (1/2)."""
    resampled = resampled_medians([[1.0], [3.0]], np.random.default_rng(0))
    assert set(resampled) == {1.0, 2.0, 3.0}
    # Five standard deviations of a binomial count.
    assert np.mean(resampled == 2.0) == pytest.approx(0.5, abs=5 * (0.25 / RESAMPLES) ** 0.5)
    assert np.mean(resampled == 1.0) == pytest.approx(0.25, abs=5 * (0.1875 / RESAMPLES) ** 0.5)


def test_a_resample_may_be_of_another_size_than_the_measurements() -> None:
    generator = np.random.default_rng(0)
    measured = [[time_s] for time_s in (1.0, 2.0, 3.0, 4.0, 5.0)]
    assert resampled_medians(measured, generator, repeats=50).std() < resampled_medians(measured, generator).std()
    with pytest.raises(ValueError, match="no measurement"):
        resampled_medians([[]], generator)


def test_many_iterations_are_drawn_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.results.metrics.bootstrap._DRAWN_AT_ONCE", 1000)
    resampled = resampled_medians([[1.0, 2.0, 3.0] * 30] * 2, np.random.default_rng(0))
    assert len(resampled) == RESAMPLES
    assert set(resampled) <= set(np.arange(1, 3.1, 0.25))
    assert np.mean(resampled == 2.0) > 0.9


@pytest.mark.parametrize(("repeats", "least", "most"), [(1, 0.1, 0.4), (2, 0.6, 0.85), (3, 0.88, 1.0), (5, 0.9, 1.0)])
def test_what_an_interval_of_so_many_repeats_would_be_worth(repeats: int, least: float, most: float) -> None:
    """How often the ratio of a thing to itself is held, at 2 % of noise between repeats and 1 % between iterations.

    Of 400 it was 26, 75, 94 and 96 in 100, as docs/comparing.md says.
    """
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        a, b = (
            resampled_medians(
                [level * generator.normal(1, 0.01, 2) for level in generator.normal(1, 0.02, repeats)], draws
            )
            for draws in map(np.random.default_rng, (0, 1))
        )
        low, high = np.quantile(b / a, (0.025, 0.975))
        held += bool(low <= 1 <= high)
    assert least <= held / 100 <= most


def test_the_interval_has_95_percent_of_what_could_have_been_drawn() -> None:
    """Of 9 repeats 2 are low: a resample's median is low with a probability of 3.04 % (binomial, 5 or more of 9)."""
    measured = [[1.0]] * 2 + [[2.0]] * 5 + [[3.0]] * 2
    assert median_interval(measured) == (1.0, 3.0), "2.5 % lie on either side of an interval of 95 %"
    assert median_interval(measured, confidence=0.9) == (2.0, 2.0), "and 5 % of one of 90 %"
    assert ratio_interval(measured, [[1.0]] * 9) == (1 / 3, 1.0)


def test_three_repeats_have_an_interval_and_five_are_enough() -> None:
    assert (FEWEST_REPEATS, ENOUGH_REPEATS) == (3, 5)


repeats = st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=30), min_size=3, max_size=6)


def values(*of: list[int]) -> list[Numbers]:
    return [np.array(each, np.int64) for each in of]


@pytest.mark.parametrize("few", [values(), values([1, 2, 3]), values([1] * 500, [2] * 500), values([1], [2], [])])
def test_below_three_repeats_there_is_none_however_many_values(few: Sequence[Numbers]) -> None:
    assert percentile_intervals(few, [50]) is None


def test_below_three_repeats_no_moment_has_any() -> None:
    assert moment_intervals(np.ones((2, 10))) is None


@given(repeats)
@settings(max_examples=40, deadline=None)
def test_an_interval_of_percentiles_lies_within_those_of_single_repeats(measured: list[list[int]]) -> None:
    of_repeats, percents = values(*measured), (1, 50, 90, 99, 100)
    found = percentile_intervals(of_repeats, percents)
    assert found is not None
    for percent, low, high in zip(percents, *found, strict=True):
        single = [nearest_rank(each, percent) or 0 for each in of_repeats]
        assert min(single) <= low <= high <= max(single)


def test_repeats_that_agree_leave_no_doubt() -> None:
    alike = values([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4])
    low, high = percentile_intervals(alike, [50, 99]) or (None, None)
    assert low is not None
    assert high is not None
    assert list(low) == list(high) == [2, 4]


def test_values_of_one_repeat_stay_together() -> None:
    """Three repeats, 900 values: were each drawn by itself, the median would hardly move."""
    found = percentile_intervals(values([10] * 300, [20] * 300, [30] * 300), [50])
    assert found is not None
    assert (found[0][0], found[1][0]) == (10, 30)


def test_a_moment_has_the_interval_of_its_own_median() -> None:
    steady, noisy = [5.0, 5.0, 5.0], [1.0, 2.0, 3.0]
    found = moment_intervals(np.array([steady, noisy]).T)
    assert found is not None
    assert [list(ends) for ends in found] == [[5.0, 1.0], [5.0, 3.0]]
