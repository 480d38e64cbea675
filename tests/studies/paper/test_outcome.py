from pathlib import Path

import pandas as pd
import pytest

from studies.paper.outcome import outcomes_of, steady_goodput_bps
from tests.studies.paper.outcomes import of, outcome
from tests.support.runner.emulated_run import write_run
from wanbed.results import load
from wanbed.results.metrics import Window


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


S = 1_000_000_000

COLUMNS = ["kind", "host", "datacenter", "peer", "tensor", "iteration", "end_ns", "size_bytes"]


def spans(*received: tuple[str, str, int, float, int]) -> pd.DataFrame:
    """Received by (host, peer, iteration, end in s, bytes); hosts of one letter stand in datacenters of their own."""
    rows = [
        ("receive", host, host[0], peer, "activation", iteration, int(end_s * S), size)
        for host, peer, iteration, end_s, size in received
    ]
    present = [("forward", host, host[0], "", "", 0, 0, 0) for host in ("e", "w", "w2")]
    return pd.DataFrame([*rows, *present], columns=COLUMNS)


def test_the_first_half_in_which_windows_open_does_not_count() -> None:
    found = spans(*(("w", "e", 1, end_s, 1000) for end_s in (1.0, 4.0, 5.0, 6.0, 7.0)))
    assert steady_goodput_bps(found, Window(0, 10 * S)) == pytest.approx(8000)


def test_each_iteration_is_a_flow_of_its_own_and_their_median_is_reported() -> None:
    found = spans(
        *(("w", "e", 1, end_s, 1000) for end_s in (1.0, 2.0)),
        *(("w", "e", 2, end_s, 1000) for end_s in (8.0, 8.5)),
        *(("w", "e", 3, end_s, 1000) for end_s in (9.0, 9.25)),
    )
    assert steady_goodput_bps(found, Window(0, 10 * S)) == pytest.approx(16_000)


def test_what_does_not_cross_the_wan_or_is_outside_the_window_does_not_count() -> None:
    inside = [("w2", "w", 1, end_s, 1000) for end_s in (1.0, 2.0)]
    warming_up = [("w", "e", 0, end_s, 1000) for end_s in (0.1, 0.2)]
    assert steady_goodput_bps(spans(*inside, *warming_up), Window(S, 10 * S)) is None


def test_a_single_transfer_gives_no_goodput() -> None:
    assert steady_goodput_bps(spans(("w", "e", 1, 5.0, 1000)), Window(0, 10 * S)) is None
