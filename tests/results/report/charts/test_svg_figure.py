"""Pictures of a page that are drawn without matplotlib: what it would write, in numbers that it would choose."""

import html
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.ticker import MaxNLocator

from wanbed import results
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.letters import letters_of
from wanbed.results.report.charts.svg_figure import SvgAxes, SvgFigure, nice_ticks, tick_texts
from wanbed.results.report.contents import every_chart
from wanbed.results.report.reported_runs import ReportedRuns

BuildRun = Callable[..., Path]


def texts(picture: str) -> Counter[str]:
    return Counter(html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)<", picture))


def test_a_plain_picture_has_the_texts_that_matplotlib_writes(build_run: BuildRun) -> None:
    run = results.load(build_run(latencies=("1ms", "10ms", "40ms", "41ms"), repeats=3))
    charts = every_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    plain = [drawing for chart in charts for drawing in chart.drawings if drawing.plain]
    assert len(plain) == 5
    for drawing in plain:
        by_matplotlib = replace(drawing, plain=False)
        for ours, theirs in ((drawing.wide, by_matplotlib.wide), (drawing.narrow, by_matplotlib.narrow)):
            assert texts(ours) == texts(theirs)
            assert ours[: ours.index("style=")] == theirs[: theirs.index("style=")], "equally high"


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(0, 6), st.integers(1, 10))
def test_ticks_are_those_of_matplotlib(low: int, span: int, power: int, most: int) -> None:
    ends = low * 10.0**power, (low + span) * 10.0**power
    slack = 1e-9 * span * 10.0**power
    theirs = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(*ends)
    shown = [tick for tick in theirs if ends[0] - slack <= tick <= ends[1] + slack]
    np.testing.assert_allclose(nice_ticks(*ends, most), shown, rtol=1e-9, atol=slack)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=9, unique=True), st.integers(-6, 6))
def test_texts_of_different_ticks_differ_and_say_their_number(numbers: list[int], power: int) -> None:
    ticks = [number * 10.0**power for number in numbers]
    found = tick_texts(ticks)
    assert len(set(found)) == len(found)
    np.testing.assert_allclose([float(text.replace("\u2212", "-")) for text in found], ticks, rtol=1e-9, atol=1e-12)


def panel_of(paint: Callable[[SvgAxes], None], width_pt: float = 400) -> str:
    figure = SvgFigure(width_pt)
    paint(figure.subplots())
    with letters_of(12):
        return str(figure.svg(200, "only"))


def test_a_name_is_escaped_and_each_of_its_lines_is_a_text() -> None:
    def paint(axis: SvgAxes) -> None:
        axis.set_yticks([0.5], ["<b>&\nsecond"])

    picture = panel_of(paint)
    assert texts(picture)["<b>&"] == texts(picture)["second"] == 1
    assert "<b>" not in picture


def test_a_line_without_an_upper_limit_has_room_and_one_with_it_is_cut() -> None:
    def height(upper: float | None) -> float:
        def paint(axis: SvgAxes) -> None:
            axis.plot([0, 1], [0, 10], color="#000000")
            axis.set_xlim(0, 1)
            axis.set_ylim(0, upper)

        picture = panel_of(paint)
        (clip,) = re.findall(r'<rect x="[^"]*" y="([^"]*)"', picture)
        (end,) = re.findall(r"M [0-9.]+ [0-9.]+ L [0-9.]+ (-?[0-9.]+)", picture)
        assert 'clip-path="url(#only-0)"' in picture
        return float(end) - float(clip)

    assert height(None) > 0
    assert height(5) < 0


def test_markers_are_spread_along_a_line_of_many_points() -> None:
    def paint(axis: SvgAxes) -> None:
        axis.plot(np.linspace(0, 1, 500), np.zeros(500), color="#000000", marker="o", markevery=0.1)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)

    at = [float(x) for x in re.findall(r'<circle cx="([0-9.]+)"', panel_of(paint))]
    assert 8 <= len(at) <= 11
    assert np.diff(at).min() > 0.9 * np.diff(at).max()


def test_the_panel_leaves_room_for_the_texts_beside_it() -> None:
    def left(name: str) -> float:
        def paint(axis: SvgAxes) -> None:
            axis.set_yticks([0.5], [name])

        (found,) = re.findall(r'<rect x="([0-9.]+)"', panel_of(paint))
        return float(found)

    assert left("a name of twenty-two") > left("short") + 80
