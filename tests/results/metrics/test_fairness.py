import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics.fairness import jain_index, slow_down, while_all_ran

factors = st.lists(st.floats(0.1, 100), min_size=1, max_size=6)


@given(st.floats(0.1, 100), st.integers(1, 6))
def test_jobs_that_are_slowed_down_alike_are_served_evenly(factor: float, jobs: int) -> None:
    assert jain_index([factor] * jobs) == pytest.approx(1)


@given(factors)
def test_the_index_lies_between_one_over_the_jobs_and_one(slow_downs: list[float]) -> None:
    assert 1 / len(slow_downs) - 1e-9 <= jain_index(slow_downs) <= 1 + 1e-9


def test_a_job_that_stands_still_beside_another_halves_the_index() -> None:
    assert jain_index([1, 1e9]) == pytest.approx(0.5)
    assert jain_index([1, 2]) == pytest.approx(0.9)


def test_a_slow_down_is_time_beside_others_over_time_alone() -> None:
    assert slow_down(2.0, 3.0) == 1.5
    assert slow_down(None, 3.0) is None
    assert slow_down(2.0, None) is None


def test_iterations_count_that_ended_while_all_ran() -> None:
    windows = pd.DataFrame({"start_ns": [0, 10, 20], "end_ns": [10, 20, 30]})
    assert list(while_all_ran(windows, 20).index) == [0, 1]
