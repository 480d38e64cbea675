from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from matplotlib.axes import Axes

from wanbed import results
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.ttft import ttft_chart
from wanbed.results.report.prefill import PrefillRow, prefill_rows

BuildRun = Callable[..., Path]


@pytest.fixture
def rows(build_run: BuildRun) -> list[PrefillRow]:
    run = results.load(build_run(variants=("alone", "filled"), prefill={"filled": 30.0}))
    return prefill_rows(run)


def styles(*rows: PrefillRow) -> Styles:
    return Styles.of({row.run: [each.variant for each in rows] for row in rows})


def test_each_sweep_point_has_the_distribution_of_its_requests(rows: Sequence[PrefillRow]) -> None:
    chart = ttft_chart(rows, styles(*rows), "a")
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
    chart = ttft_chart(swept, styles(*swept), "a")
    assert chart is not None
    assert chart.title == "Time to first token against the rate of requests"
    for text in ("50th percentile", "99th percentile", "requests a second, offered"):
        assert f">{text}<" in chart.drawings[0].wide


@pytest.mark.parametrize(("repeats", "sure"), [(1, False), (2, False), (3, True)])
def test_a_band_takes_three_repeats(build_run: BuildRun, repeats: int, sure: bool) -> None:
    path = build_run(variants=("alone", "filled"), latencies=("10ms",), repeats=repeats, prefill={"filled": 30.0})
    found = prefill_rows(results.load(path))
    assert [len(row.ttft.of_repeats_ns) for row in found] == [repeats]
    swept = [replace(row, values={"prefill.rate": f"{rate}/s"}) for rate in (4, 8) for row in found]
    for rows, marks in ((found, "fill_betweenx"), (swept, "errorbar")):
        chart = ttft_chart(rows, styles(*rows), "a")
        assert chart is not None
        assert ("95 % intervals" in chart.reading) == sure
        assert ("each is drawn by itself" in chart.reading) == (repeats == 2)
        with patch.object(Axes, marks, autospec=True, side_effect=getattr(Axes, marks)) as drawn:
            assert chart.drawings[0].wide
        assert drawn.called == sure


def test_runs_lie_over_each_other_in_the_sweep_points_that_they_share(rows: Sequence[PrefillRow]) -> None:
    both = [replace(row, run=run) for run in ("old", "new") for row in rows]
    chart = ttft_chart(both, styles(*both), "a")
    assert chart is not None
    assert [entry.label for entry in chart.legend] == ["filled", "old", "new"]
    assert "with filled in old" in chart.reading


def test_no_request_answered_is_no_chart(rows: Sequence[PrefillRow]) -> None:
    unanswered = [replace(row, ttft=replace(row.ttft, whole_ns=row.ttft.whole_ns[:0])) for row in rows]
    assert ttft_chart(unanswered, styles(*rows), "a") is None
