"""Draw iteration time against WAN latency or another swept number, or by sweep point."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wanbed.results.reading.headline import HeadlineRow, worth_note
from wanbed.results.reading.stored_trial import LATENCY_PATH, point_text
from wanbed.results.report.charts.chart import (
    Chart,
    Drawing,
    PicturePlace,
    interval_bar,
    panel_title,
    panel_width_pt,
    panels,
    points_legend,
    series_legend,
    series_names,
)
from wanbed.results.report.charts.colours import Style, Styles
from wanbed.results.report.charts.letters import every_nth, spaced, wrapped
from wanbed.results.report.charts.swept_points import SweptAxis
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.text import NO_SWEEP, list_text, ratio_text, seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 9
MAX_SWEEP_POINTS = 24
"""The most sweep points drawn side by side, if no number was swept."""
MAX_NAMED_POINTS = 3
"""Up to this many sweep points are named beneath the axis; of more, the reading has the names."""


def iteration_time_chart(reported: ReportedRuns, styles: Styles) -> Chart | None:
    """Draw the median iteration time of all runs with its interval, or every repeat if there are too few for one.

    None if nothing was measured. If latency was swept, it is the x axis, with a panel for each combination of the
    other swept values; so is any other number that alone was swept. Otherwise sweep points are drawn side by side.
    """
    measured = [row for row in reported.headline if row.times.median_s is not None]
    if not measured:
        return None
    swept = _swept_axis(measured)
    names = series_names(measured)
    legend = series_legend(styles, *names) if swept else points_legend(styles, *names)
    title = f"Iteration time against {swept.name}" if swept else "Iteration time"
    points = list(dict.fromkeys(row.where for row in measured))
    drawn = measured if swept else [row for row in measured if row.where in points[:MAX_SWEEP_POINTS]]
    every_panel = _panels(drawn, swept)
    shown = list(every_panel.values())[:MAX_PANELS]
    slowest_s = max(time_s for row in measured for time_s in (*row.times.of_repeats_s, *(row.times.interval_s or ())))

    def paint(figure: "Figure", layout: PicturePlace) -> float:
        columns = 1 if layout.narrow else min(3, len(shown))
        axes, grid_rows = panels(figure, len(shown), columns, sharey=True)
        width_pt = panel_width_pt(figure, columns)
        further_lines = 0
        for position, (axis, panel) in enumerate(zip(axes, shown, strict=True)):
            name = point_text(_others(panel[0], swept), layout.labels)
            further_lines = max(further_lines, panel_title(axis, name, width_pt))
            axis.set_ylim(0, 1.08 * slowest_s)
            axis.grid(axis="y")
            axis.set_ylabel("iteration time (s)" if position % columns == 0 else "")
            if swept:
                _lines(axis, panel, swept, styles, layout, width_pt=width_pt)
            else:
                _points(axis, panel, styles, layout, width_pt)
        return grid_rows * ((240 if layout.narrow else 300) + further_lines * layout.line_px)

    reading = _swept_reading(measured, swept) if swept else _points_reading(drawn)
    if not swept and len(names[1]) > 1:
        reading += " The runs of one variant are side by side, in the legend's order."
    reading += _intervals_reading(drawn)
    if note := worth_note(drawn):
        reading += f" {note}"
    if len(drawn) < len(measured):
        reading += f" The first {MAX_SWEEP_POINTS} of {len(points)} sweep points are drawn; the table has all."
    if len(shown) < len(every_panel):
        reading += f" The first {len(shown)} of {len(every_panel)} combinations are drawn; the table has all."
    drawing = Drawing(f"{title}. {reading}", "all-time", paint, plain=True)
    return Chart("iteration-time", title, legend, (drawing,), reading, frozenset("xy" if swept else "y"))


def _swept_axis(rows: Sequence[HeadlineRow]) -> SweptAxis | None:
    """Return the axis of the swept latency, or of the only swept path; None if it has no numbers."""
    paths = {path for row in rows for path in row.values}
    varying = {path for path in paths if len({row.values.get(path) for row in rows}) > 1}
    path = LATENCY_PATH if LATENCY_PATH in paths else next(iter(varying), "") if len(varying) == 1 else ""
    if not all(path in row.values for row in rows):
        return None
    values = list(dict.fromkeys(row.values[path] for row in rows))
    return SweptAxis.of(path, values) if path == LATENCY_PATH or len(values) > 1 else None


def _others(row: HeadlineRow, swept: SweptAxis | None) -> dict[str, str]:
    """Return the swept values that distinguish panels: all but those of the axis, none without such an axis."""
    return {path: value for path, value in row.values.items() if path != swept.path} if swept else {}


def _panels(rows: Sequence[HeadlineRow], swept: SweptAxis | None) -> dict[str, list[HeadlineRow]]:
    panels: dict[str, list[HeadlineRow]] = {}
    for row in rows:
        panels.setdefault(point_text(_others(row, swept)), []).append(row)
    return panels


def _series(
    axis: "Axes", x: Sequence[float], rows: Sequence[HeadlineRow], style: Style, *, scale: float, position: int
) -> None:
    # Draw later series thinner, so that an earlier one at the same place stays visible beneath.
    thinner = scale * max(0.5, 1 - 0.2 * position)
    axis.plot(
        x, [row.times.median_s or 0 for row in rows], color=style.colour, linestyle=style.line or "none",
        linewidth=3 * thinner, clip_on=False,
    )  # fmt: skip
    points = [(at, time_s) for at, row in zip(x, rows, strict=True) for time_s in _points_of(row)]
    axis.plot(
        *zip(*points, strict=True), color=style.colour, marker=style.marker, linestyle="none",
        markersize=9 * thinner, clip_on=False, markerfacecolor=style.colour if style.filled else "white",
    )  # fmt: skip
    for at, row in zip(x, rows, strict=True):
        if row.times.interval_s is not None:
            interval_bar(axis, at, row.times.interval_s, scale)


def _points_of(row: HeadlineRow) -> Sequence[float]:
    """Return the median if it has an interval, else the time of every repeat."""
    return row.times.of_repeats_s if row.times.interval_s is None else (row.times.median_s or 0,)


def _intervals_reading(rows: Sequence[HeadlineRow]) -> str:
    """Return a text that explains the bars and the points."""
    several = [row for row in rows if row.times.interval_s is None and len(row.times.of_repeats_s) > 1]
    bars = " Bars are 95 % intervals of the median." if any(row.times.interval_s is not None for row in rows) else ""
    return bars + (" Where there are two repeats, each is a point." if several else "")


def _by_series(rows: Sequence[HeadlineRow]) -> dict[tuple[str, str], list[HeadlineRow]]:
    """Group rows by variant and run, in order of appearance."""
    series: dict[tuple[str, str], list[HeadlineRow]] = {}
    for row in rows:
        series.setdefault((row.variant, row.run), []).append(row)
    return series


def _lines(
    axis: "Axes",
    rows: Sequence[HeadlineRow],
    swept: SweptAxis,
    styles: Styles,
    layout: PicturePlace,
    *,
    width_pt: float,
) -> None:
    for position, ((variant, run), found) in enumerate(_by_series(rows).items()):
        own = sorted(found, key=lambda row: swept.value(row.values))
        x = [swept.value(row.values) for row in own]
        _series(axis, x, own, styles.of_series(variant, run), scale=layout.scale, position=position)
    ticks = sorted({swept.value(row.values) for row in rows})
    texts = [f"{tick:g}" for tick in ticks]
    axis.set_xlim(min(0, ticks[0]), 1.04 * ticks[-1] or 1)
    kept = spaced(ticks, texts, width_pt, logarithmic="x" in layout.logarithmic)
    axis.set_xticks([ticks[number] for number in kept], [texts[number] for number in kept])
    axis.set_xlabel(swept.title(layout.labels))


def _points(axis: "Axes", rows: Sequence[HeadlineRow], styles: Styles, layout: PicturePlace, width_pt: float) -> None:
    points = list(dict.fromkeys(row.where for row in rows))
    series = _by_series(rows)
    for position, ((variant, run), own) in enumerate(series.items()):
        shift = 0.5 * ((position + 0.5) / len(series) - 0.5)
        style = replace(styles.of_series(variant, run), line="")
        _series(axis, [points.index(row.where) + shift for row in own], own, style, scale=layout.scale, position=0)
    axis.set_xlim(-0.5, len(points) - 0.5)
    if len(points) <= MAX_NAMED_POINTS:
        values = {row.where: row.values for row in rows}
        unswept = NO_SWEEP if any(points) else ""
        names = [
            wrapped(point_text(values[point], layout.labels) or unswept, 0.9 * width_pt / len(points))
            for point in points
        ]
        axis.set_xticks(range(len(points)), names)
    else:
        numbers = [str(number) for number in range(len(points))]
        step = every_nth(numbers, width_pt)
        axis.set_xticks(range(0, len(points), step), numbers[::step])
    axis.set_xlabel(
        ("sweep point" if len(points) > MAX_NAMED_POINTS else "") if any(points) else "variants, in the legend's order"
    )


def _time(row: HeadlineRow) -> float:
    return row.times.median_s or 0


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
    time = seconds_text(best.times.median_s)
    if len(rows) == 1:
        return f"{where}{best.variant} takes {time} an iteration."
    factors = [ratio_text(_time(row) / (_time(best) or 1)) for row in rows]
    slower = [row for row, factor in zip(rows, factors, strict=True) if row is not best and factor != ratio_text(1)]
    fastest = [row for row in rows if not any(row is each for each in slower)]
    names = list_text([row.variant for row in fastest])
    if not slower:
        return f"{where}{names} are equally fast, {time} an iteration."
    are = "are the fastest" if len(fastest) > 1 else "is the fastest"
    if baseline is fastest[0]:
        second = min(slower, key=_time)
        factor = ratio_text(_time(second) / (_time(best) or 1))
        return f"{where}{names} {are}, {time} an iteration; {second.variant} takes {factor} that."
    owed = ", ".join(best.differs) if len(fastest) == 1 else ""
    return (
        f"{where}{names} {are}, {time} an iteration against "
        f"{seconds_text(baseline.times.median_s)} of {baseline.variant}: a speed-up of "
        f"{ratio_text(_time(baseline) / (_time(best) or 1))}{f' ({owed})' if owed else ''}."
    )


def _swept_reading(rows: Sequence[HeadlineRow], swept: SweptAxis) -> str:
    others = point_text(_others(rows[-1], swept))
    panel = _panels(rows, swept)[others]
    high, low = (pick(swept.value(row.values) for row in panel) for pick in (max, min))
    highest = [row for row in panel if swept.value(row.values) == high]
    lowest = {row.variant: row for row in panel if swept.value(row.values) == low}
    unit = f" {swept.unit}" if swept.unit else ""
    where = f"At {high:g}{unit}" if swept.path == LATENCY_PATH else f"At {swept.name} {high:g}{unit}"
    reading = _fastest_sentences(highest, f"{where}{f' and {others}' if others else ''}, ")
    if high == low or len({row.run for row in highest}) > 1:
        return reading
    ratios = [
        f"{row.variant} takes {ratio_text(_time(row) / (_time(lowest[row.variant]) or 1))}"
        for row in highest
        if row.variant in lowest
    ]
    return reading + (f" From {low:g} to {high:g}{unit}, {list_text(ratios)} as long." if ratios else "")


def _points_reading(rows: Sequence[HeadlineRow]) -> str:
    last = [row for row in rows if row.where == rows[-1].where]
    where = last[0].where
    sentence = _fastest_sentences(last, f"With {where}, " if where else "")
    points = list(dict.fromkeys(row.where for row in rows))
    names = [f"{number}: {point or NO_SWEEP}" for number, point in enumerate(points)]
    return sentence + (f" Sweep points: {'; '.join(names)}." if len(names) > MAX_NAMED_POINTS else "")
