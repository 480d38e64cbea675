"""How far the period of each schedule is from the best that any order gives, and the printed bound with it.

The cells are those of ``tests/runner/bound/test_optimum.py``; some minutes. A gap counts from the shortest period that
the solver found, whether it is proven to be the shortest or not.
"""

from collections import defaultdict
from statistics import median

import pytest

from tests.support.runner.small_cells import FEW, MANY, Compared, compared


@pytest.mark.timeout(1800)
def test_gaps_to_the_optimum() -> None:
    found: dict[str, list[Compared]] = defaultdict(list)
    for cell in (*FEW, *MANY):
        for each in compared(cell):
            found[each.schedule].append(each)
    print("\nschedule         cells  optimal  median gap  worst gap   bound of the optimum, median  least")
    for schedule, all_of_it in found.items():
        gaps = [each.gap for each in all_of_it]
        bounds = [each.bound_ns / each.optimum.most_ns for each in all_of_it]
        optimal = sum(gap < 1e-6 for gap in gaps)
        print(
            f"{schedule:16} {len(gaps):5}  {optimal:7}  {median(gaps):10.1%}  {max(gaps):9.1%}   "
            f"{median(bounds):28.1%}  {min(bounds):5.1%}"
        )
    exact = [each.optimum.exact for each in found["atlas"] + found["zb-2p"]]
    print(f"{sum(exact)} of {len(exact)} optima are proven")
