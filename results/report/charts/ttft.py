"""Draw the time to first token (TTFT) of requests: its distribution, or its percentiles by request rate."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis as MatplotlibAxis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from wanbed.results import metrics
from wanbed.results.metrics import NS_PER_S
from wanbed.results.metrics.bootstrap import FEWEST_REPEATS, Interval
from wanbed.results.metrics.intervals import Numbers
from wanbed.results.reading.stored_trial import RATE_PATH, point_text
from wanbed.results.report.charts.chart import (
    Chart,
    Drawing,
    PicturePlace,
    interval_bar,
    panel_title,
    panel_width_pt,
    series_legend,
)
from wanbed.results.report.charts.colours import BLACK, GREY, Style, Styles, lightened
from wanbed.results.report.prefill import PrefillRow
from wanbed.results.text import list_text, seconds_text

MAX_PANELS = 9
MAX_STEPS = 300
"""The most requests drawn of one distribution; of more, evenly spaced ones are drawn."""
DRAWN_PERCENTILES = (50, 99)
LOGARITHMIC_FROM = 30
"""Times that differ by more than this factor are drawn on a logarithmic axis."""
MAX_VARIANTS_READ = 3

_BAND_PERCENTS = range(1, 101)

_Series = dict[tuple[str, str], list[PrefillRow]]


def ttft_chart(rows: Sequence[PrefillRow], styles: Styles, salt: str) -> Chart | None:
    """Draw the distribution of TTFT at each sweep point, or percentiles by request rate if only that was swept.

    None if no request has a TTFT.
    """
    served = [row for row in rows if len(row.ttft.whole_ns)]
    if not served:
        return None
    names = (dict.fromkeys(each) for each in ([row.variant for row in served], [row.run for row in served]))
    legend = series_legend(styles, *names)
    by_rate = all(list(row.values) == [RATE_PATH] for row in served) and len({row.where for row in served}) > 1
    title = "Time to first token" + (" against the rate of requests" if by_rate else "")
    points: dict[str, list[PrefillRow]] = {}
    for row in served:
        points.setdefault(row.where, []).append(row)
    shown = dict(list(points.items())[-MAX_PANELS:])

    def paint(figure: Figure, layout: PicturePlace) -> float:
        if by_rate:
            return _paint_percentiles(figure, layout, served, styles)
        return _paint_distributions(figure, layout, shown, styles)

    reading = _reading(list(points.values())[-1])
    reading += " Thin lines exclude the KV transfer"
    reading += "; the dash-dotted line is the SLO." if any(row.slo_s for row in served) else "."
    reading += _intervals_reading(served)
    if not by_rate and len(shown) < len(points):
        reading += f" The last {len(shown)} of {len(points)} sweep points are drawn; the table has all."
    drawing = Drawing(f"{title}. {reading}", f"{salt}-ttft", paint)
    return Chart("ttft", title, legend, (drawing,), reading, frozenset("xy"))


def _grid(figure: Figure, layout: PicturePlace, panels: int) -> tuple[list[Axes], int, int]:
    columns = 1 if layout.narrow else min(3, panels)
    grid_rows = -(-panels // columns)
    axes = list(figure.subplots(grid_rows, columns, squeeze=False).flat)
    for unused in axes[panels:]:
        unused.set_visible(False)
    return axes[:panels], columns, grid_rows * (240 if layout.narrow else 290)


def _paint_distributions(
    figure: Figure, layout: PicturePlace, points: Mapping[str, Sequence[PrefillRow]], styles: Styles
) -> float:
    axes, columns, height = _grid(figure, layout, len(points))
    width_pt, further_lines = panel_width_pt(figure, columns), 0
    for position, (axis, own) in enumerate(zip(axes, points.values(), strict=True)):
        drawn_ns = [times_ns for row in own for times_ns in (row.ttft.whole_ns, row.ttft.without_kv_ns)]
        drawn_s = np.concatenate(drawn_ns) / NS_PER_S
        further_lines = max(further_lines, panel_title(axis, point_text(own[0].values, layout.labels), width_pt))
        for row in own:
            style = styles.of_series(row.variant, row.run)
            interval = row.ttft.intervals_s(_BAND_PERCENTS)
            if interval is not None:
                _band(axis, interval, style, layout)
            # Without an interval there are one or two repeats: draw each of them.
            whole = [row.ttft.whole_ns] if interval is not None else row.ttft.of_repeats_ns
            for times_ns, width, strength in (
                (row.ttft.without_kv_ns, 1.0, 0.7),
                *((each, 2.2, 1.0) for each in whole),
            ):
                if len(times_ns):
                    axis.step(
                        *_steps(times_ns), where="post", color=style.colour, linestyle=style.line,
                        linewidth=width * layout.scale, alpha=strength,
                    )  # fmt: skip
        for slo_s in {row.slo_s for row in own if row.slo_s}:
            axis.axvline(slo_s, color=GREY, linestyle="-.", linewidth=layout.scale)
        _logarithmic_if_wide(axis.set_xscale, axis.xaxis, drawn_s)
        axis.set_ylim(0, 102)
        axis.set_xlabel("time to first token (s)")
        axis.set_ylabel("requests answered (%)" if position % columns == 0 else "")
        axis.grid()
    return height + -(-len(axes) // columns) * further_lines * layout.line_px


def _paint_percentiles(figure: Figure, layout: PicturePlace, rows: Sequence[PrefillRow], styles: Styles) -> float:
    axes, _, height = _grid(figure, layout, len(DRAWN_PERCENTILES))
    drawn = (row.ttft.without_kv_s[percent] for row in rows for percent in DRAWN_PERCENTILES)
    drawn_s = [*(each for each in drawn if each), *(row.slo_s for row in rows if row.slo_s)]
    series: _Series = {}
    for row in rows:
        series.setdefault((row.variant, row.run), []).append(row)
    for axis, percent in zip(axes, DRAWN_PERCENTILES, strict=True):
        axis.set_title(f"{percent}th percentile", fontsize="medium", loc="left")
        for (variant, run), found in series.items():
            style = styles.of_series(variant, run)
            own = sorted(found, key=lambda row: row.offered_per_s or 0)
            rates = [row.offered_per_s or 0 for row in own]
            times_s, without_s = (
                np.array([percentiles[percent] for percentiles in of_rows], float)
                for of_rows in ([row.ttft.whole_s for row in own], [row.ttft.without_kv_s for row in own])
            )
            axis.plot(rates, without_s, color=style.colour, linestyle=style.line, linewidth=layout.scale, alpha=0.7)
            axis.plot(rates, times_s, color=style.colour, linestyle=style.line, linewidth=2.2 * layout.scale)
            points = [
                (rate, time_s) for rate, row in zip(rates, own, strict=True) for time_s in _points_of(row, percent)
            ]
            axis.plot(
                *zip(*points, strict=True), color=style.colour, marker=style.marker, linestyle="none",
                markersize=6 * layout.scale, markerfacecolor=style.colour if style.filled else "white",
            )  # fmt: skip
            for rate, row in zip(rates, own, strict=True):
                interval = row.ttft.intervals_s([percent])
                if interval is not None:
                    interval_bar(axis, rate, (interval[0][0], interval[1][0]), layout.scale)
        for slo_s in {row.slo_s for row in rows if row.slo_s}:
            axis.axhline(slo_s, color=GREY, linestyle="-.", linewidth=layout.scale)
        _logarithmic_if_wide(axis.set_yscale, axis.yaxis, np.array(drawn_s, float))
        if axis.get_yscale() == "linear":
            axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
        axis.set_xlabel("requests a second, offered")
        axis.set_ylabel("time to first token (s)" if layout.narrow or percent == DRAWN_PERCENTILES[0] else "")
        axis.grid()
    return height


def _band(axis: Axes, interval_s: Interval, style: Style, layout: PicturePlace) -> None:
    """Fill between the ends of the percentiles' intervals; the outline makes it visible in a grey print."""
    axis.fill_betweenx(
        _BAND_PERCENTS, *interval_s, facecolor=lightened(style.colour), edgecolor=BLACK, alpha=0.5,
        linewidth=0.6 * layout.scale,
    )  # fmt: skip


def _points_of(row: PrefillRow, percent: int) -> list[float]:
    """Return the percentile of all requests in seconds if it has an interval, else the percentile of every repeat."""
    has_interval = row.ttft.intervals_s([percent]) is not None
    repeats = (row.ttft.whole_ns,) if has_interval else row.ttft.of_repeats_ns
    found = (metrics.nearest_rank(times_ns, percent) for times_ns in repeats)
    return [each / NS_PER_S for each in found if each is not None]


def _intervals_reading(rows: Sequence[PrefillRow]) -> str:
    """Return a text that explains the bands, the bars and the points."""
    measured = [sum(1 for times_ns in row.ttft.of_repeats_ns if len(times_ns)) for row in rows]
    intervals = (
        " Bands and bars are 95 % intervals, by the bootstrap over repeats." if max(measured) >= FEWEST_REPEATS else ""
    )
    few = any(1 < repeats < FEWEST_REPEATS for repeats in measured)
    return intervals + (" Where there are two repeats, each is drawn by itself." if few else "")


def _logarithmic_if_wide(
    set_scale: Callable[[str], None], axis: MatplotlibAxis, times_s: npt.NDArray[np.float64]
) -> None:
    """Set a logarithmic axis, labelled with plain numbers, if the times differ by more than ``LOGARITHMIC_FROM``."""
    if len(times_s) and times_s.min() > 0 and times_s.max() > LOGARITHMIC_FROM * times_s.min():
        set_scale("log")
        axis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=8))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _steps(times_ns: Numbers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return times in seconds, and the percentage of all requests that were answered within each of them.

    At most ``MAX_STEPS`` times are chosen; the shortest and the longest are among them.
    """
    ranks = np.unique(np.linspace(0, len(times_ns) - 1, min(len(times_ns), MAX_STEPS)).round().astype(np.int64))
    times_s = times_ns[ranks] / NS_PER_S
    return np.append(times_s[:1], times_s), np.append(0.0, 100 * (ranks + 1) / len(times_ns))


def _reading(rows: Sequence[PrefillRow]) -> str:
    where = f"With {rows[0].where}, " if rows[0].where else ""
    several = len({row.run for row in rows}) > 1
    lines = []
    for row in rows[:MAX_VARIANTS_READ]:
        name = f"{row.variant} in {row.run}" if several else row.variant
        half_s, most_s = (seconds_text(row.ttft.whole_s[percent]) for percent in DRAWN_PERCENTILES)
        lines.append(f"{half_s} and {most_s} with {name}")
    half = "half" if where else "Half"
    answered = f"{half} and 99 % of the answered requests had their first token, including the KV transfer, within"
    return f"{where}{answered} {list_text(lines)}."
