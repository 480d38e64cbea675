import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report import report
from wanbed.results.report.charts.gpu_time import PARTS, GpuTimeShares
from wanbed.results.report.prefill import (
    BEYOND,
    MARGIN,
    UNDECIDED,
    WITHIN,
    DeadlineOverruns,
    Impact,
    bubbles_reading,
    impacts,
    prefill_rows,
    prefill_tables,
)

pytestmark = pytest.mark.usefixtures("unpainted")

BuildRun = Callable[..., Path]


def impact(low: float, high: float, **more: Any) -> Impact:
    given = Impact("", 0, {}, "alone", "filled", 5, (low + high) / 2, (low, high), None, simulated=False)
    return replace(given, **more)


@pytest.fixture
def with_and_without(build_run: BuildRun) -> Run:
    variants = ("gpipe", "atlas", "filled")
    return results.load(build_run(variants=variants, latencies=("10ms",), repeats=5, prefill={"filled": 10.0}))


def test_a_variant_is_compared_with_the_equal_one_without_prefill(with_and_without: Run) -> None:
    (found,) = impacts(with_and_without)
    assert (found.without, found.variant, found.pairs, found.verdict) == ("atlas", "filled", 5, WITHIN)
    assert found.interval is not None
    assert found.interval[0] <= found.ratio <= found.interval[1]
    assert found.words == "no impact"


def test_training_that_is_slowed_down_shows(with_and_without: Run) -> None:
    slower = with_and_without.summary.copy()
    filled = slower["variant"] == "filled"
    slower.loc[filled, "iteration_time_s"] *= 1.02
    (found,) = impacts(replace(with_and_without, summary=slower))
    assert (found.verdict, found.words) == (BEYOND, "slower")
    assert found.ratio == pytest.approx(1.02, rel=1e-3)


def test_only_repeats_that_both_have_are_pairs(with_and_without: Run) -> None:
    kept = [
        each
        for each in range(len(with_and_without.trials))
        if with_and_without.trials[each].variant != "atlas" or with_and_without.trials[each].repeat < 3
    ]
    trials = tuple(with_and_without.trials[each] for each in kept)
    (found,) = impacts(
        replace(with_and_without, trials=trials, summary=with_and_without.summary.iloc[kept].reset_index(drop=True))
    )
    assert (found.pairs, found.words) == (3, "no impact, with 3 of at least 5 pairs")


def first_repeats(run: Run, repeats: int) -> Run:
    kept = [position for position, trial in enumerate(run.trials) if trial.repeat < repeats]
    trials = tuple(run.trials[position] for position in kept)
    return replace(run, trials=trials, summary=run.summary.iloc[kept].reset_index(drop=True))


@pytest.mark.parametrize("pairs", [1, 2])
def test_below_three_pairs_there_is_no_interval_and_no_verdict(with_and_without: Run, pairs: int) -> None:
    (found,) = impacts(first_repeats(with_and_without, pairs))
    assert found.interval is None
    assert found.words == f"undecided, with {pairs} of at least 5 pairs, no interval"


def test_one_pair_in_virtual_time_is_enough_by_what_it_repeats_within(with_and_without: Run) -> None:
    points = [{**entry, "wan": []} for entry in with_and_without.manifest["sweep_points"]]
    lone = first_repeats(with_and_without, 1)
    (found,) = impacts(replace(lone, manifest={**lone.manifest, "clock": "virtual", "sweep_points": points}))
    assert (found.interval, found.words) == (None, "no impact")
    assert replace(found, ratio=1 + MARGIN - 0.001).verdict == UNDECIDED


def test_variants_that_differ_in_more_than_prefill_are_not_compared(with_and_without: Run) -> None:
    manifest: Mapping[str, Any] = {
        **with_and_without.manifest,
        "experiment": {
            "variants": [{"name": name, "schedule": name, "prefill": None} for name in with_and_without.variants]
        },
    }
    assert impacts(replace(with_and_without, manifest=manifest)) == []


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


@pytest.fixture
def served(build_run: BuildRun) -> Run:
    variants = ("alone", "filled")
    return results.load(build_run(variants=variants, latencies=("10ms", "40ms"), repeats=2, prefill={"filled": 40.0}))


def test_each_sweep_point_and_variant_that_serves_has_a_row_of_all_its_repeats(served: Run) -> None:
    rows = prefill_rows(served, "here")
    assert [(row.run, row.where, row.variant, row.repeats) for row in rows] == [
        ("here", f"WAN latency {latency}", "filled", 2) for latency in ("10ms", "40ms")
    ]
    for row in rows:
        assert sorted(row.ttft.whole_ns) == list(row.ttft.whole_ns)
        times_s = [row.ttft.without_kv_s[50], row.ttft.whole_s[50], row.ttft.whole_s[99]]
        half_s, half_with_kv_s, most_s = (each for each in times_s if each is not None)
        assert half_s < half_with_kv_s <= most_s
        assert row.offered_per_s == pytest.approx(40, rel=0.3)
        assert row.rejections.keys() <= {"slo"}
        assert (row.gpus.count, row.overruns) == (6, DeadlineOverruns(0, 0))
        assert row.gpus.pool_equivalent_at_80 == pytest.approx(row.gpus.pool_equivalent / 0.8)


def with_facts(run: Run, **facts: object) -> Run:
    changed = (
        replace(trial, facts={**trial.facts, "prefill": {**trial.facts["prefill"], **facts}})
        if "prefill" in trial.facts
        else trial
        for trial in run.trials
    )
    return replace(run, trials=tuple(changed))


def test_a_variant_that_does_not_serve_has_none_and_a_pool_without_bubbles_has_one(served: Run) -> None:
    assert prefill_rows(with_facts(served, policy="none")) == []
    row = prefill_rows(with_facts(served, policy="none", pool_gpus=2))[0]
    assert (row.policy, row.gpus.pooled, row.gpus.count) == ("none", 2, 8)


def test_overruns_are_summed_over_repeats_and_unknown_if_a_trial_lacks_them(served: Run) -> None:
    assert prefill_rows(with_facts(served, deadline_overruns=3))[0].overruns == DeadlineOverruns(6, 0)
    assert prefill_rows(with_facts(served, deadline_overruns=None))[0].overruns is None


def test_without_prefill_there_is_no_table(build_run: BuildRun) -> None:
    assert prefill_tables(prefill_rows(results.load(build_run())), []) == []


def test_the_outcomes_have_the_accepted_share_and_deadline_overruns(served: Run) -> None:
    outcomes, _ = prefill_tables(prefill_rows(served), [])
    assert "none of these answered later" in outcomes.reading[0]
    assert outcomes.reading[0].endswith("Training never had to wait for a GPU.")
    slowed, _ = prefill_tables(prefill_rows(with_facts(served, deadline_overruns=1)), [])
    assert slowed.reading[0].endswith("Training had to wait for a GPU 4 times with filled.")


def test_the_reading_of_the_bubbles_says_which_stay_empty_and_why() -> None:
    parts = {**dict.fromkeys(PARTS, 0), "training": 60, "prefill": 30, "link": 8, "fill_drain": 2}
    shares = [GpuTimeShares("", 0, {"prefill.rate": "4/s"}, "filled", parts, 100)]
    assert bubbles_reading(shares).replace("\u00a0", " ") == (
        "With request rate 4/s: filled filled 75.0 % of its bubbles (of what stayed empty, "
        "80.0 % waiting for the link and 20.0 % pipeline fill and drain)."
    )
    assert bubbles_reading([replace(shares[0], parts_ns={**parts, "prefill": 0})]) == ""


def test_tables_of_very_many_sweep_points_are_folded(
    served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folded() -> list[str]:
        report.write_report([served], tmp_path / "report.html")
        return re.findall(r"<summary>(\d+ sweep points)</summary>", (tmp_path / "report.html").read_text())

    assert folded() == []
    monkeypatch.setattr(report, "MAX_OPEN_POINTS", 1)
    assert folded().count("2 sweep points") >= 3
