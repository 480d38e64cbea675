import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from matplotlib.axes import Axes

from tests.support.present import present
from tests.support.results.reported import with_rows
from wanbed import results
from wanbed.results.reading.prefill import DeadlineOverruns, PrefillRow, prefill_rows
from wanbed.results.reading.run import Run
from wanbed.results.report import report
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.gpu_time import PARTS, GpuTimeShares
from wanbed.results.report.prefill import (
    BEYOND,
    MARGIN,
    UNDECIDED,
    WITHIN,
    Impact,
    bubbles_reading,
    impacts,
    outcomes_table,
    served,
    service_table,
    ttft_chart,
)
from wanbed.results.report.reported_runs import ReportedRuns

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
def run(build_run: BuildRun) -> Run:
    variants = ("alone", "filled")
    return results.load(build_run(variants=variants, latencies=("10ms", "40ms"), repeats=2, prefill={"filled": 40.0}))


def late(row: PrefillRow) -> PrefillRow:
    return replace(row, overruns=DeadlineOverruns(2, 0))


def test_without_prefill_there_is_no_table(build_run: BuildRun) -> None:
    reported = ReportedRuns.of({"": results.load(build_run())})
    assert [table(reported) for table in (outcomes_table, service_table)] == [None, None]


def test_the_outcomes_have_the_accepted_share_and_deadline_overruns(run: Run) -> None:
    outcomes = present(outcomes_table(ReportedRuns.of({"": run})))
    assert "none of these answered later" in outcomes.reading[0]
    assert outcomes.reading[0].endswith("Training never had to wait for a GPU.")
    slowed = present(outcomes_table(with_rows(served, [late(row) for row in prefill_rows(run)])))
    assert slowed.reading[0].endswith("Training had to wait for a GPU 4 times with filled.")


def test_the_reading_of_the_bubbles_says_which_stay_empty_and_why() -> None:
    parts = {**dict.fromkeys(PARTS, 0), "training": 60, "prefill": 30, "link": 8, "fill_drain": 2}
    shares = [GpuTimeShares("", 0, {"prefill.rate": "4/s"}, "filled", parts, 100)]
    assert bubbles_reading(shares).replace("\u00a0", " ") == (
        "With request rate 4/s: filled filled 75.0 % of its bubbles (of what stayed empty, "
        "80.0 % waiting for the link and 20.0 % in pipeline fill and drain)."
    )
    assert bubbles_reading([replace(shares[0], parts_ns={**parts, "prefill": 0})]) == ""


def test_tables_of_very_many_rows_are_folded(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folded() -> list[str]:
        report.write_report([run], tmp_path / "report.html")
        return re.findall(r"<summary>(\d+ sweep points, \d+ rows)</summary>", (tmp_path / "report.html").read_text())

    assert folded() == []
    monkeypatch.setattr(report, "MAX_OPEN_ROWS", 1)
    assert sum(text.startswith("2 sweep points, ") for text in folded()) >= 3


@pytest.fixture
def rows(build_run: BuildRun) -> list[PrefillRow]:
    run = results.load(build_run(variants=("alone", "filled"), prefill={"filled": 30.0}))
    return prefill_rows(run)


def styles(*rows: PrefillRow) -> Styles:
    return Styles.of({row.run: [each.variant for each in rows] for row in rows})


def test_each_sweep_point_has_the_distribution_of_its_requests(rows: Sequence[PrefillRow]) -> None:
    chart = ttft_chart(with_rows(served, rows), styles(*rows))
    assert chart is not None
    assert chart.title == "Time to first token"
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        assert all(
            f">{text}<" in picture for text in ("WAN latency 10ms", "WAN latency 40ms", "time to first token (s)")
        )
        assert "mathdefault" not in picture
    assert [entry.label for entry in chart.legend] == ["filled"]
    assert chart.reading.startswith("With WAN latency 40ms, half and 99 % of the answered requests had")
    assert chart.reading.endswith("Thin lines exclude the KV transfer; the dash-dotted line is the SLO.")


def test_where_the_rate_alone_was_swept_percentiles_stand_against_it(rows: Sequence[PrefillRow]) -> None:
    swept = [replace(row, values={"prefill.rate": f"{rate}/s"}) for row, rate in zip(rows, (4, 8), strict=True)]
    chart = ttft_chart(with_rows(served, swept), styles(*swept))
    assert chart is not None
    assert chart.title == "Time to first token against the rate of requests"
    for text in ("50th percentile", "99th percentile", "requests a second, offered"):
        assert f">{text}<" in chart.drawings[0].wide


@pytest.mark.parametrize(("repeats", "sure"), [(1, False), (2, False), (3, True)])
def test_a_band_of_first_token_times_takes_three_repeats(build_run: BuildRun, repeats: int, sure: bool) -> None:
    path = build_run(variants=("alone", "filled"), latencies=("10ms",), repeats=repeats, prefill={"filled": 30.0})
    found = prefill_rows(results.load(path))
    assert [len(row.ttft.of_repeats_ns) for row in found] == [repeats]
    swept = [replace(row, values={"prefill.rate": f"{rate}/s"}) for rate in (4, 8) for row in found]
    for rows, marks in ((found, "fill_betweenx"), (swept, "errorbar")):
        chart = ttft_chart(with_rows(served, rows), styles(*rows))
        assert chart is not None
        assert ("95 % intervals" in chart.reading) == sure
        assert ("each is drawn by itself" in chart.reading) == (repeats == 2)
        with patch.object(Axes, marks, autospec=True, side_effect=getattr(Axes, marks)) as drawn:
            assert chart.drawings[0].wide
        assert drawn.called == sure


def test_runs_lie_over_each_other_in_the_sweep_points_that_they_share(rows: Sequence[PrefillRow]) -> None:
    both = [replace(row, run=run) for run in ("old", "new") for row in rows]
    chart = ttft_chart(with_rows(served, both), styles(*both))
    assert chart is not None
    assert [entry.label for entry in chart.legend] == ["filled", "old", "new"]
    assert "with filled in old" in chart.reading


def test_no_request_answered_is_no_chart_of_first_token_times(rows: Sequence[PrefillRow]) -> None:
    unanswered = [replace(row, ttft=replace(row.ttft, whole_ns=row.ttft.whole_ns[:0])) for row in rows]
    assert ttft_chart(with_rows(served, unanswered), styles(*rows)) is None
