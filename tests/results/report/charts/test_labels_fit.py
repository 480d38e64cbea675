"""No text of a figure is cut off, and none covers another, for long names and many of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.results.report.charts.test_iteration_time import row
from tests.support.results.reported import with_headline
from wanbed import results
from wanbed.results.reading.headline import HeadlineRow
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.figure_options import SIZES, FigureOptions, Size
from wanbed.results.report.charts.heat_map import heat_map_chart
from wanbed.results.report.charts.iteration_time import iteration_time_chart
from wanbed.results.report.charts.paper import DPI, draw, paper_settings
from wanbed.results.report.contents import every_chart
from wanbed.results.report.reported_runs import ReportedRuns

VARIANTS = [
    "one connection with the default window of the kernel",
    "varuna",
    "x" * 120,
    *(f"variant number {number} of a long ablation over transports and windows" for number in range(9)),
]
DATACENTERS = ("us-east-1-north-virginia-campus-b", "ap-southeast-1-singapore-tuas-hall-4", "eu")
TOUCHING_PX = 3.0
EVERY_SIZE = [*SIZES.values(), Size.parse("85mm"), Size.parse("6in")]


def texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    figure.set_dpi(DPI)
    figure.draw_without_rendering()
    # Matplotlib keeps ticks outside an axis' view, and does not draw them.
    undrawn = {
        tick.label1
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text in undrawn:
            continue
        shown = text.get_visible() and text.get_text().strip() and (text.axes is None or text.axes.get_visible())
        if shown:
            yield text.get_text(), text.get_window_extent()


def faults(figure: Figure) -> list[str]:
    found = list(texts(figure))
    assert found
    cut = [
        f"cut: {text}"
        for text, box in found
        if box.x0 < -TOUCHING_PX or box.y0 < -TOUCHING_PX
        or box.x1 > figure.bbox.x1 + TOUCHING_PX or box.y1 > figure.bbox.y1 + TOUCHING_PX
    ]  # fmt: skip
    edges = np.array([box.extents for _, box in found])
    low, high = edges[:, None, :2], edges[:, None, 2:]
    shared = np.minimum(high, high.transpose(1, 0, 2)) - np.maximum(low, low.transpose(1, 0, 2))
    pairs = np.argwhere(np.triu(shared.min(axis=2) > TOUCHING_PX, k=1))
    covered = [f"covered: {found[one][0]} by {found[other][0]}" for one, other in pairs]
    return cut + covered


def faults_of(chart: Chart | None, size: Size, options: FigureOptions | None = None) -> list[str]:
    assert chart is not None
    chosen = options or FigureOptions()
    with paper_settings(chosen.font_pt):
        return [fault for drawing in chart.drawings for fault in faults(draw(chart, drawing, size, chosen))]


def rows_of(*sweeps: tuple[str, list[str]]) -> list[HeadlineRow]:
    points: list[dict[str, str]] = [{}]
    for path, values in sweeps:
        points = [{**point, path: value} for point in points for value in values]
    return [
        row(number, variant, 1.0 + 0.1 * number, **point) for number, point in enumerate(points) for variant in VARIANTS
    ]


STYLES = Styles.of({"": VARIANTS})
LATENCIES = [f"{latency}ms" for latency in range(1, 31)]


@pytest.mark.parametrize(
    "size",
    # Sizes of one's own are close to these.
    [pytest.param(each, id=each.name, marks=() if each.name in SIZES else pytest.mark.soak) for each in EVERY_SIZE],
)
@pytest.mark.parametrize(
    "rows",
    [
        rows_of(("topology_wan_latency", LATENCIES)),
        rows_of(("schedule", [f"s{number}" for number in range(30)])),
        rows_of(("transport_tensor_of_a_long_name", ["one long value", "another long value", "a third of them"])),
        rows_of(
            ("topology_wan_latency", ["5ms", "40ms"]), ("topology_wan_rate", ["1Gbit", "2Gbit"]), ("n_m", ["4", "8"])
        ),
        rows_of(("topology_wan_latency", ["1ms", "2ms", "4ms", "8ms", "100ms", "1s"])),
    ],
    ids=["30 latencies", "30 sweep points", "3 long sweep points", "panels", "uneven latencies"],
)
def test_iteration_time(rows: list[HeadlineRow], size: Size) -> None:
    assert faults_of(iteration_time_chart(with_headline(rows), STYLES), size) == []


FONTS_AT = {
    (2, "column"): (6.0, 8.0),
    (2, "page"): (8.0, 11.0),
    (12, "column"): (6.0,),
    (12, "page"): (11.0,),
}
"""The sizes of letters at which a map is drawn on every landing, by the map's rates and its size.

They are the usual one and the one that is hard at a width; of many rates, which take seconds to draw, the hard one. The
others are drawn in the soak.
"""


@pytest.mark.parametrize(
    ("rates", "size", "font_pt"),
    [
        pytest.param(
            rates, size, font_pt, id=f"{rates}-{size.name}-{font_pt:g}pt",
            marks=() if font_pt in FONTS_AT.get((rates, size.name), ()) else pytest.mark.soak,
        )
        for rates in (2, 12)
        for size in EVERY_SIZE
        for font_pt in (6.0, 8.0, 11.0)
    ],
)  # fmt: skip
def test_heat_map(rates: int, size: Size, font_pt: float) -> None:
    rows = rows_of(
        ("topology_wan_latency", LATENCIES[:: 31 - 2 * rates]),
        ("topology_wan_node__pair__rate", [f"{10 * rate + 5}Mbit" for rate in range(rates)]),
    )
    assert faults_of(heat_map_chart(with_headline(rows), STYLES), size, FigureOptions(font_pt=font_pt)) == []


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.results import conftest

    build: Callable[..., Path] = conftest.build_run.__wrapped__(  # type: ignore[attr-defined]
        tmp_path_factory.mktemp("nasty")
    )
    return results.load(build(variants=VARIANTS, latencies=("10ms", "40ms"), datacenters=DATACENTERS))


@pytest.mark.parametrize("size", SIZES.values(), ids=lambda size: size.name)
def test_every_chart_of_a_run_with_long_names(nasty: Run, size: Size) -> None:
    charts = every_chart(ReportedRuns.of({"": nasty}), Styles.of({"": nasty.variants}))
    assert {chart.name for chart in charts} == {"iteration-time", "gpu-time", "timeline", "link-throughput"}
    assert {chart.name: found for chart in charts if (found := faults_of(chart, size))} == {}
