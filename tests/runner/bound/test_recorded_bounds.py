"""Bounds are what they were: who changes one on purpose records it anew, as ``tests/support/recorded.py`` says."""

from pathlib import Path

from tests.support.recorded import check_recorded
from tests.support.runner.drawn_points import drawn_points
from wanbed.runner.bound.lower_bound import lower_bounds


def test_drawn_experiments_have_the_bounds_that_they_had() -> None:
    found = {}
    for name, point in drawn_points().items():
        for variant in point.variants:
            bounds = lower_bounds(point.topology, variant, point.iterations(variant))
            found[f"{name} {variant.name}"] = (
                "none"
                if bounds is None
                else f"period {bounds.period.time_ns} of {bounds.period.part}, "
                f"makespan {bounds.makespan.time_ns} of {bounds.makespan.part}"
            )
    check_recorded(Path(__file__).with_name("recorded_bounds.txt"), found)
