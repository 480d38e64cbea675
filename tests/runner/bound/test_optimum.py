"""The bound that is printed, the optimum that a solver proves, and the periods of schedules stand in this order.

``tests/bench/bench_optimum.py`` prints how far each is from the optimum.
"""

import pytest

from tests.support.runner.small_cells import FEW, MANY, SmallCell, compared

ROUNDING_NS = 10


@pytest.mark.parametrize("cell", [*FEW, *(pytest.param(each, marks=pytest.mark.soak) for each in MANY)], ids=str)
def test_no_bound_is_above_the_optimum_and_no_period_below_it(cell: SmallCell) -> None:
    for each in compared(cell):
        assert each.bound_ns <= each.optimum.most_ns + ROUNDING_NS, each
        assert each.period_ns >= each.optimum.least_ns - ROUNDING_NS, each
