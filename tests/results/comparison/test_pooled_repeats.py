from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.results.comparison.pooled_repeats import moment_intervals, percentile_intervals
from wanbed.results.metrics import nearest_rank
from wanbed.results.metrics.intervals import Numbers

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
