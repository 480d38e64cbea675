"""Draw iteration time against WAN latency, or by sweep point if something other than latency was swept."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ground.units import parse_duration_ns
from results.reading.headline import LATENCY_PATH, HeadlineRow, point_text
from results.report.charts.chart import Chart, Drawing, points_legend, series_legend
from results.report.charts.drawing.canvas import Layout
from results.report.charts.drawing.colours import Style, Styles
from results.report.charts.drawing.interval_bar import interval_bar
from results.text.number_text import list_text, ratio_text, seconds_text, shortened

MAX_PANELS = 9
MAX_SWEEP_POINTS = 24
"""The most sweep points drawn side by side, if latency was not swept."""
MAX_TICKS = 8

_NS_PER_MS = 1e6


def latency_ms(values: Mapping[str, str]) -> float | None:
    """Return the swept one-way WAN latency of a sweep point in milliseconds, None if it was not swept."""
    try:
        return parse_duration_ns(values.get(LATENCY_PATH)) / _NS_PER_MS
    except ValueError:
        return None


def iteration_time_chart(rows: Sequence[HeadlineRow], styles: Styles, salt: str) -> Chart | None:
    """Draw the median iteration time of all runs with its interval, or every repeat if there are too few for one.

    None if nothing was measured. If latency was swept, it is the x axis, with a panel for each combination of the
    other swept values; otherwise the sweep points are drawn side by side.
    """
    measured = [row for row in rows if row.iteration_time_s is not None]
    if not measured:
        return None
    by_latency = all(latency_ms(row.values) is not None for row in measured)
    names = [list(dict.fromkeys(each)) for each in _series_names(measured)]
    legend = series_legend(styles, *names) if by_latency else points_legend(styles, *names)
    title = "Iteration time against WAN latency" if by_latency else "Iteration time"
    points = list(dict.fromkeys(row.where for row in measured))
    drawn = measured if by_latency else [row for row in measured if row.where in points[:MAX_SWEEP_POINTS]]
    panels = _panels(drawn) if by_latency else {"": drawn}
    shown = dict(list(panels.items())[:MAX_PANELS])
    slowest_s = max(time_s for row in measured for time_s in (*row.repeat_times_s, *(row.interval_s or ())))

    def paint(figure: Figure, layout: Layout) -> float:
        columns = 1 if layout.narrow else min(3, len(shown))
        grid_rows = -(-len(shown) // columns)
        axes = figure.subplots(grid_rows, columns, squeeze=False, sharey=True)
        for position, (name, panel) in enumerate(shown.items()):
            axis = axes.flat[position]
            axis.set_title(name, fontsize="medium", loc="left")
            axis.set_ylim(0, 1.08 * slowest_s)
            axis.grid(axis="y")
            axis.set_ylabel("iteration time (s)" if position % columns == 0 else "")
            (_lines if by_latency else _points)(axis, panel, styles, layout)
        for unused in axes.flat[len(shown) :]:
            unused.set_visible(False)
        return grid_rows * (240 if layout.narrow else 300)

    reading = _latency_reading(measured) if by_latency else _points_reading(drawn)
    if not by_latency and len(names[1]) > 1:
        reading += " The runs of one variant are side by side, in the legend's order."
    reading += _intervals_reading(drawn)
    if len(drawn) < len(measured):
        reading += f" The first {MAX_SWEEP_POINTS} of {len(points)} sweep points are drawn; the table has all."
    if len(shown) < len(panels):
        reading += f" The first {len(shown)} of {len(panels)} combinations are drawn; the table has all."
    drawing = Drawing(f"{title}. {reading}", f"{salt}-time", paint)
    return Chart("iteration-time", title, legend, (drawing,), reading)


def _series_names(rows: Sequence[HeadlineRow]) -> tuple[list[str], list[str]]:
    return [row.variant for row in rows], [row.run for row in rows]


def _others(row: HeadlineRow) -> str:
    return point_text({path: value for path, value in row.values.items() if path != LATENCY_PATH})


def _panels(rows: Sequence[HeadlineRow]) -> dict[str, list[HeadlineRow]]:
    panels: dict[str, list[HeadlineRow]] = {}
    for row in rows:
        panels.setdefault(_others(row), []).append(row)
    return panels


def _series(
    axis: Axes, x: Sequence[float], rows: Sequence[HeadlineRow], style: Style, *, scale: float, position: int
) -> None:
    # Draw later series thinner, so that an earlier one at the same place stays visible beneath.
    thinner = scale * max(0.5, 1 - 0.2 * position)
    axis.plot(
        x, [row.iteration_time_s or 0 for row in rows], color=style.colour, linestyle=style.line or "none",
        linewidth=3 * thinner, clip_on=False,
    )  # fmt: skip
    points = [(at, time_s) for at, row in zip(x, rows, strict=True) for time_s in _points_of(row)]
    axis.plot(
        *zip(*points, strict=True), color=style.colour, marker=style.marker, linestyle="none",
        markersize=9 * thinner, clip_on=False, markerfacecolor=style.colour if style.filled else "white",
    )  # fmt: skip
    for at, row in zip(x, rows, strict=True):
        if row.interval_s is not None:
            interval_bar(axis, at, row.interval_s, scale)


def _points_of(row: HeadlineRow) -> Sequence[float]:
    """Return the median if it has an interval, else the time of every repeat."""
    return row.repeat_times_s if row.interval_s is None else (row.iteration_time_s or 0,)


def _intervals_reading(rows: Sequence[HeadlineRow]) -> str:
    """Return a text that explains the bars and the points."""
    several = [row for row in rows if row.interval_s is None and len(row.repeat_times_s) > 1]
    bars = " Bars are 95 % intervals of the median." if any(row.interval_s is not None for row in rows) else ""
    return bars + (" Where there are two repeats, each is a point." if several else "")


def _by_series(rows: Sequence[HeadlineRow]) -> dict[tuple[str, str], list[HeadlineRow]]:
    """Group rows by variant and run, in order of appearance."""
    series: dict[tuple[str, str], list[HeadlineRow]] = {}
    for row in rows:
        series.setdefault((row.variant, row.run), []).append(row)
    return series


def _lines(axis: Axes, rows: Sequence[HeadlineRow], styles: Styles, layout: Layout) -> None:
    for position, ((variant, run), found) in enumerate(_by_series(rows).items()):
        own = sorted(found, key=lambda row: latency_ms(row.values) or 0)
        x = [latency_ms(row.values) or 0 for row in own]
        _series(axis, x, own, styles.of_series(variant, run), scale=layout.scale, position=position)
    swept = sorted({latency_ms(row.values) or 0 for row in rows})
    ticks = swept[:: -(-len(swept) // MAX_TICKS)]
    ticks[-1] = swept[-1]
    axis.set_xticks(ticks)
    axis.set_xticklabels([f"{tick:g}" for tick in ticks])
    axis.set_xlim(0, 1.04 * ticks[-1] or 1)
    axis.set_xlabel("one-way WAN latency (ms)")


def _points(axis: Axes, rows: Sequence[HeadlineRow], styles: Styles, layout: Layout) -> None:
    points = list(dict.fromkeys(row.where for row in rows))
    series = _by_series(rows)
    for position, ((variant, run), own) in enumerate(series.items()):
        shift = 0.5 * ((position + 0.5) / len(series) - 0.5)
        style = replace(styles.of_series(variant, run), line="")
        _series(axis, [points.index(row.where) + shift for row in own], own, style, scale=layout.scale, position=0)
    axis.set_xlim(-0.5, len(points) - 0.5)
    axis.set_xticks(range(len(points)))
    named = any(points)
    axis.set_xticklabels([shortened(point, 40) if len(points) <= 3 else f"{n}" for n, point in enumerate(points)])
    axis.set_xlabel(("sweep point" if len(points) > 3 else "") if named else "variants, in the legend's order")


def _time(row: HeadlineRow) -> float:
    return row.iteration_time_s or 0


def _fastest_sentences(rows: Sequence[HeadlineRow], where: str) -> str:
    """Return a sentence for each run that names the fastest variant."""
    runs = list(dict.fromkeys(row.run for row in rows))
    sentences = (
        _fastest_sentence(
            [row for row in rows if row.run == run],
            (f"{where}in {run} " if where else f"In {run} ") if len(runs) > 1 else where,
        )
        for run in runs
    )
    return " ".join(sentences)


def _fastest_sentence(rows: Sequence[HeadlineRow], where: str) -> str:
    baseline, best = rows[0], min(rows, key=_time)
    time = seconds_text(best.iteration_time_s)
    if len(rows) == 1:
        return f"{where}{best.variant} takes {time} an iteration."
    if best is baseline:
        second = min(rows[1:], key=_time)
        factor = ratio_text(_time(second) / (_time(best) or 1))
        return f"{where}{best.variant} is the fastest, {time} an iteration; {second.variant} takes {factor} that."
    return (
        f"{where}{best.variant} is the fastest, {time} an iteration against "
        f"{seconds_text(baseline.iteration_time_s)} of {baseline.variant}: a speed-up of {ratio_text(best.speed_up)}."
    )


def _latency_reading(rows: Sequence[HeadlineRow]) -> str:
    first = _panels(rows)[_others(rows[-1])]
    far_ms, near_ms = (pick(latency_ms(row.values) or 0 for row in first) for pick in (max, min))
    far = [row for row in first if latency_ms(row.values) == far_ms]
    near = {row.variant: row for row in first if latency_ms(row.values) == near_ms}
    others = f" and {_others(rows[-1])}" if _others(rows[-1]) else ""
    reading = _fastest_sentences(far, f"At {far_ms:g} ms{others}, ")
    if far_ms == near_ms or len({row.run for row in far}) > 1:
        return reading
    grown = [
        f"{row.variant} takes {ratio_text(_time(row) / (_time(near[row.variant]) or 1))}"
        for row in far
        if row.variant in near
    ]
    return reading + (f" From {near_ms:g} to {far_ms:g} ms, {list_text(grown)} as long." if grown else "")


def _points_reading(rows: Sequence[HeadlineRow]) -> str:
    last = [row for row in rows if row.where == rows[-1].where]
    where = last[0].where
    sentence = _fastest_sentences(last, f"With {where}, " if where else "")
    points = list(dict.fromkeys(row.where for row in rows))
    names = [f"{number}: {point}" for number, point in enumerate(points)]
    return sentence + (f" Sweep points: {'; '.join(names)}." if len(names) > 3 else "")
