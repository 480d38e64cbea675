from studies.paper.goodput_chart import RECALLED, goodput_chart
from tests.studies.paper.outcomes import outcome

MEASURED = [
    outcome("fig5", "one connection", 1.0, latency, steady_goodput_bps=rate_bps)
    for latency, rate_bps in (("10ms", 1.2e9), ("40ms", 3e8))
]


def test_the_reading_has_every_figure_and_the_legend_marks_recalled_ones() -> None:
    chart = goodput_chart(MEASURED, {"one connection": {"10ms": 1.22e9}})
    assert chart is not None
    assert "One connection: 1.20\u00a0Gbit/s at 10 ms and 300\u00a0Mbit/s at 40 ms." in chart.reading
    assert [entry.label for entry in chart.legend] == ["one connection", RECALLED]
    assert "<svg" in chart.drawings[0].wide


def test_nothing_is_drawn_where_latency_was_not_swept() -> None:
    assert goodput_chart([outcome("fig4", "varuna", 1.0, "", steady_goodput_bps=1e9)], {}) is None
