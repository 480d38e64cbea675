"""Spans become columns whose rows are given up meanwhile."""

from array import array

import numpy as np
import pytest

from wanbed.runner.simulator.simulated_spans import taken_columns


@pytest.mark.parametrize("count", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, (1 << 17) + 3])
def test_columns_are_those_of_the_rows_which_are_gone(count: int) -> None:
    flat = array("q", range(8 * count))
    columns = taken_columns(flat)
    assert len(columns) == 8
    assert not flat
    assert all(np.array_equal(column, np.arange(count) * 8 + place) for place, column in enumerate(columns))
