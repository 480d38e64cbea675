"""How far simulations of the kinds that are known to be off are off: every experiment made for that, in virtual time.

All take half an hour on two busy cores. The rows that are printed are those of the table in the repository,
``results/reference/known-misses/cells.csv``; after other rows are put there, the tests of
``wanbed.runner.validation.measured_cells`` say which ranges have to be brought up to date.
"""

from pathlib import Path

import pytest

import wanbed
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.resolve.known_misses import misses_of
from wanbed.runner.validation.agreement import VIRTUAL_POINT_LIMIT
from wanbed.runner.validation.measured_cells import compared_rows, rows_text

EXPERIMENTS = Path(__file__).resolve().parents[2] / "results" / "reference" / "known-misses" / "experiments"


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_each_figure_is_within_five_percent_or_within_the_range_of_a_mark(file: Path, tmp_path: Path) -> None:
    points = load_experiment(file).points()
    virtual, simulated = wanbed.run(file, runs=tmp_path), wanbed.simulate(file, runs=tmp_path)
    rows = list(compared_rows(file.stem, [point.topology for point in points], virtual, simulated))
    print(f"\n{rows_text(rows)}")
    for row in rows:
        point, error = points[row.sweep_point], row.simulated / row.virtual - 1
        misses = misses_of(point.topology, point.variant(row.variant))
        marked = any(miss.low <= error <= miss.high for miss in misses)
        assert abs(error) <= VIRTUAL_POINT_LIMIT or marked, f"{row}: {error:+.1%}"
