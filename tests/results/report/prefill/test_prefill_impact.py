from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.prefill.prefill_impact import BEYOND, MARGIN, UNDECIDED, WITHIN, Impact, impacts

pytestmark = pytest.mark.usefixtures("unpainted")

BuildRun = Callable[..., Path]


def impact(low: float, high: float, **more: Any) -> Impact:
    given = Impact("", 0, {}, "alone", "filled", 5, (low + high) / 2, (low, high), None, simulated=False)
    return replace(given, **more)


@pytest.fixture
def served(build_run: BuildRun) -> Run:
    variants = ("gpipe", "atlas", "filled")
    return results.load(build_run(variants=variants, latencies=("10ms",), repeats=5, prefill={"filled": 10.0}))


def test_a_variant_is_compared_with_the_equal_one_without_prefill(served: Run) -> None:
    (found,) = impacts(served)
    assert (found.without, found.variant, found.pairs, found.verdict) == ("atlas", "filled", 5, WITHIN)
    assert found.interval is not None
    assert found.interval[0] <= found.ratio <= found.interval[1]
    assert found.words == "no impact"


def test_training_that_is_slowed_down_shows(served: Run) -> None:
    slower = served.summary.copy()
    filled = slower["variant"] == "filled"
    slower.loc[filled, "iteration_time_s"] *= 1.02
    (found,) = impacts(replace(served, summary=slower))
    assert (found.verdict, found.words) == (BEYOND, "slower")
    assert found.ratio == pytest.approx(1.02, rel=1e-3)


def test_only_repeats_that_both_have_are_pairs(served: Run) -> None:
    kept = [
        each
        for each in range(len(served.trials))
        if served.trials[each].variant != "atlas" or served.trials[each].repeat < 3
    ]
    trials = tuple(served.trials[each] for each in kept)
    (found,) = impacts(replace(served, trials=trials, summary=served.summary.iloc[kept].reset_index(drop=True)))
    assert (found.pairs, found.words) == (3, "no impact, with 3 of at least 5 pairs")


def first_repeats(run: Run, repeats: int) -> Run:
    kept = [position for position, trial in enumerate(run.trials) if trial.repeat < repeats]
    trials = tuple(run.trials[position] for position in kept)
    return replace(run, trials=trials, summary=run.summary.iloc[kept].reset_index(drop=True))


@pytest.mark.parametrize("pairs", [1, 2])
def test_below_three_pairs_there_is_no_interval_and_no_verdict(served: Run, pairs: int) -> None:
    (found,) = impacts(first_repeats(served, pairs))
    assert found.interval is None
    assert found.words == f"undecided, with {pairs} of at least 5 pairs, no interval"


def test_one_pair_in_virtual_time_is_enough_by_what_it_repeats_within(served: Run) -> None:
    points = [{**entry, "wan": []} for entry in served.manifest["sweep_points"]]
    lone = first_repeats(served, 1)
    (found,) = impacts(replace(lone, manifest={**lone.manifest, "clock": "virtual", "sweep_points": points}))
    assert (found.interval, found.words) == (None, "no impact")
    assert replace(found, ratio=1 + MARGIN - 0.001).verdict == UNDECIDED


def test_variants_that_differ_in_more_than_prefill_are_not_compared(served: Run) -> None:
    manifest: Mapping[str, Any] = {
        **served.manifest,
        "experiment": {"variants": [{"name": name, "schedule": name, "prefill": None} for name in served.variants]},
    }
    assert impacts(replace(served, manifest=manifest)) == []


def test_a_simulation_is_exact_and_needs_no_interval(build_run: BuildRun) -> None:
    path = build_run(
        variants=("atlas", "filled"), latencies=("10ms",), prefill={"filled": 5.0}, manifest={"engine": "simulate"}
    )
    (found,) = impacts(results.load(path))
    assert (found.interval, found.ratio, found.words) == (None, 1.0, "no impact")


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((1 - MARGIN, 1 + MARGIN), WITHIN),
        ((0.999, 1.006), UNDECIDED),
        ((0.9, 0.999), UNDECIDED),
        ((1.006, 1.01), BEYOND),
        ((0.9, 0.99), BEYOND),
    ],
)
def test_the_whole_interval_has_to_lie_within_the_margin(interval: tuple[float, float], verdict: str) -> None:
    assert impact(*interval).verdict == verdict


def test_without_an_interval_the_verdict_is_undecided() -> None:
    assert impact(1, 1, interval=None).words == "undecided"
