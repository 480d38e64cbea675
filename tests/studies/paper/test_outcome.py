from pathlib import Path

import pytest

from studies.paper.outcome import outcomes_of
from tests.studies.paper.outcomes import of, outcome
from tests.support.runner.emulated_run import write_run
from wanbed.results import load


def test_a_run_gives_an_outcome_for_each_sweep_point_and_variant(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, {(0, "gpipe"): [2.0], (1, "1f1b"): [3.0]}))
    found = outcomes_of("part", run)
    assert [(each.part, each.latency, each.variant, each.iteration_time_s) for each in found] == [
        ("part", "10ms", "gpipe", pytest.approx(2.0)),
        ("part", "40ms", "1f1b", pytest.approx(3.0)),
    ]
    assert all(each.calibrated and each.deadline_overruns is None for each in found)


def test_links_outside_tolerance_are_reported(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, {(0, "gpipe"): [2.0]}, within_tolerance=False))
    assert not outcomes_of("part", run)[0].calibrated


def test_an_outcome_is_found_in_the_first_part_that_has_it() -> None:
    outcomes = of(outcome("a", "x", 1.0), outcome("b", "x", 2.0), outcome("b", "y", 3.0))
    assert outcomes.find(("a", "b"), "x", "40ms") == outcome("a", "x", 1.0)
    assert outcomes.find(("a", "b"), "y", "40ms") == outcome("b", "y", 3.0)
    assert outcomes.find("a", "y", "40ms") is None
    assert outcomes.find("a", "x", "10ms") is None


def test_a_part_without_a_sweep_is_at_the_latency_of_its_file() -> None:
    assert of(outcome("a", "x", 1.0, latency="")).find("a", "x", "40ms") == outcome("a", "x", 1.0, latency="")


def test_what_has_no_measured_iteration_is_not_found() -> None:
    assert of(outcome("a", "x", None)).find("a", "x", "40ms") is None
