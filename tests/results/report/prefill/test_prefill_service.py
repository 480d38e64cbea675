import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report import report
from wanbed.results.report.gpu_time_shares import PARTS, GpuTimeShares
from wanbed.results.report.prefill.prefill_service import bubbles_reading, prefill_rows, prefill_tables

pytestmark = pytest.mark.usefixtures("unpainted")

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
        assert sorted(row.ttft_ns) == list(row.ttft_ns)
        assert row.ttft_without_kv_s[50] < row.ttft_s[50] <= row.ttft_s[99]  # type: ignore[operator]
        assert row.offered_per_s == pytest.approx(40, rel=0.3)
        assert row.rejections.keys() <= {"slo"}
        assert (row.gpus, row.deadline_overruns) == (6, 0)
        assert row.pool_equivalent_at_80 == pytest.approx(row.pool_equivalent / 0.8)


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
    assert (row.policy, row.pool_gpus, row.gpus) == ("none", 2, 8)


def test_overruns_are_summed_over_repeats_and_unknown_if_a_trial_lacks_them(served: Run) -> None:
    assert prefill_rows(with_facts(served, deadline_overruns=3))[0].deadline_overruns == 6
    assert prefill_rows(with_facts(served, deadline_overruns=None))[0].deadline_overruns is None


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
