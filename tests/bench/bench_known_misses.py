"""How far simulations of the kinds that are known to be off are off: every experiment made for that, in virtual time.

All take half an hour on two busy cores. The rows that are printed are those of the table in the repository,
``results/reference/known-misses/cells.csv``; after other rows are put there, the tests of
``wanbed.runner.validation.measured_cells`` say which ranges have to be brought up to date.
"""

from pathlib import Path

import pytest

import wanbed
from wanbed.results.reading.known_misses import known_misses_of
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.validation.agreement import VIRTUAL_POINT_LIMIT
from wanbed.runner.validation.measured_cells import compared_rows, rows_text

EXPERIMENTS = Path(__file__).resolve().parents[2] / "results" / "reference" / "known-misses" / "experiments"


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_each_figure_is_within_five_percent_or_within_the_range_of_a_mark(file: Path, tmp_path: Path) -> None:
    points = load_experiment(file).points()
    virtual, simulated = wanbed.run(file, runs=tmp_path), wanbed.simulate(file, runs=tmp_path)
    rows = list(compared_rows(file.stem, [point.topology for point in points], virtual, simulated))
    print(f"\n{rows_text(rows)}")
    marks = {(trial.point, trial.variant): known_misses_of(trial.facts) for trial in simulated.trials}
    for row in rows:
        error = row.simulated / row.virtual - 1
        marked = any(miss.low <= error <= miss.high for miss in marks[row.sweep_point, row.variant])
        assert abs(error) <= VIRTUAL_POINT_LIMIT or marked, f"{row}: {error:+.1%}"
