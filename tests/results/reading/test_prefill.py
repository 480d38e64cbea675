"""Requests of prefill are read into a row for each sweep point and variant."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wanbed import results
from wanbed.results.reading.prefill import DeadlineOverruns, prefill_rows
from wanbed.results.reading.run import Run

BuildRun = Callable[..., Path]


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
