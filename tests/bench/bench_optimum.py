"""How far the period of each schedule is from the best that any order gives, and the printed bound with it.

The cells are those of ``tests/runner/bound/test_optimum.py``; some minutes. A gap counts from the shortest period that
the solver found, whether it is proven to be the shortest or not.
"""

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

import pytest

from tests.support.runner.small_cells import FEW, MANY, Compared, SmallCell, compared


def traits(cell: SmallCell) -> Iterator[str]:
    """Yield what the table tells apart. Memory is counted in microbatches, beside the stages: S of them."""
    more = None if cell.held is None else cell.held - cell.stages
    yield "holds all" if more is None else "holds 2 S" if more == cell.stages else f"holds S + {more}"
    yield "link shared" if cell.shared else "link each"
    yield "stages uneven" if cell.uneven else "stages even"


@pytest.mark.timeout(1800)
def test_gaps_to_the_optimum() -> None:
    found: dict[str, list[Compared]] = defaultdict(list)
    apart: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in (*FEW, *MANY):
        for each in compared(cell):
            found[each.schedule].append(each)
            for trait in traits(cell):
                apart[each.schedule][trait].append(each.gap)
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
    columns = sorted({trait for by_trait in apart.values() for trait in by_trait})
    print("\nmedian, worst gap " + "  ".join(f"{trait:>14}" for trait in columns))
    for schedule, by_trait in apart.items():
        cells = (f"{median(gaps):5.1%}, {max(gaps):5.1%}" if (gaps := by_trait[trait]) else "none" for trait in columns)
        print(f"{schedule:17} " + "  ".join(f"{cell:>14}" for cell in cells))
