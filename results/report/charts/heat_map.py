"""Draw a sweep over two paths as heat maps: each variant's iteration time, and its speed-up over the first variant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from wanbed.results.reading.headline import HeadlineRow
from wanbed.results.reading.stored_trial import LATENCY_PATH
from wanbed.results.report.charts.chart import Chart, Drawing, PicturePlace, panel_title
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.letters import every_nth, font_pt, text_width_pt
from wanbed.results.report.charts.swept_points import SweptAxis, swept_title
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.text import list_text, ratio_text, seconds_text, three_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

MAX_PANELS, MAX_COLUMNS = 9, 3
COLOURS = "cividis"
"""A map of rising lightness that readers with any colour vision see alike, and that can be read in a grey print."""
FASTEST_WITHIN = 1.01
"""A frame marks the fastest variant of a sweep point, and each that takes at most this multiple of its time."""

LOGARITHMIC_FROM = 5
"""Times that differ by more than this factor are coloured by their logarithm."""

_UNKNOWN_COLOUR = "#E6E6E6"
_DARK_BELOW = 0.55
"""Text is white on colours of the map below this share of it, and black on lighter ones."""
_CELL_PX, _NARROW_CELL_PX = 30, 24
_ABOVE_PX, _LEAST_PX = 60, 130

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Grid:
    """The sweep points by their two swept values; the entries of ``names`` are variant and run."""

    paths: tuple[str, str]
    values: tuple[Sequence[str], Sequence[str]]
    names: Sequence[tuple[str, str]]
    times_s: Sequence[Numbers]
    """The iteration times of each name, a row for each value of the second path; NaN where nothing was measured."""
    bases_s: Sequence[Numbers]
    """The same of the first variant of each name's run."""


def heat_map_chart(reported: ReportedRuns, _: Styles) -> Chart | None:
    """Draw the panels of every variant. None unless exactly two paths with two or more values each were swept."""
    measured = [row for row in reported.headline if row.times.median_s is not None]
    grid = _grid(measured)
    if grid is None:
        return None
    shown = range(len(grid.names[:MAX_PANELS]))
    against = [number for number in shown if grid.times_s[number] is not grid.bases_s[number]]
    title = f"Iteration time by {' and '.join(_axis_titles(grid, {}))}"
    reading = _reading(grid)
    if len(grid.names) > MAX_PANELS:
        reading += f" The first {MAX_PANELS} of {len(grid.names)} variants are drawn; the table has all."
    several_runs = len({run for _, run in grid.names}) > 1
    paint = partial(_paint, grid=grid, several_runs=several_runs)
    drawings = [Drawing(f"{title}. {reading}", "all-heat", partial(paint, panels=shown, ratios=False), name="time")]
    if against:
        description = "Speed-up over the first variant at each sweep point."
        drawings.append(
            Drawing(description, "all-heat-speed-up", partial(paint, panels=against, ratios=True), name="speed-up")
        )
    return Chart("heat-map", title, (), tuple(drawings), reading)


def _grid(rows: Sequence[HeadlineRow]) -> _Grid | None:
    paths = tuple(dict.fromkeys(path for row in rows for path in row.values))
    if len(paths) != 2 or any(len(row.values) != 2 for row in rows):
        return None
    across, up = sorted(paths, key=lambda path: path != LATENCY_PATH)
    values = (_in_order(across, rows), _in_order(up, rows))
    points = {(row.values[across], row.values[up]) for row in rows}
    # Without further sweep points, the two values vary together, along a line.
    if min(map(len, values)) < 2 or len(points) <= max(map(len, values)):
        return None
    times_s: dict[tuple[str, str], Numbers] = {}
    for row in rows:
        own = times_s.setdefault((row.variant, row.run), np.full((len(values[1]), len(values[0])), np.nan))
        own[values[1].index(row.values[up]), values[0].index(row.values[across])] = row.times.median_s
    first: dict[str, Numbers] = {}
    for (_, run), own in times_s.items():
        first.setdefault(run, own)
    names = list(times_s)
    return _Grid((across, up), values, names, list(times_s.values()), [first[run] for _, run in names])


def _in_order(path: str, rows: Sequence[HeadlineRow]) -> list[str]:
    """Return the values of a path: numbers from the smallest, others in the order of the sweep."""
    values = list(dict.fromkeys(row.values[path] for row in rows))
    axis = SweptAxis.of(path, values)
    return sorted(values, key=lambda value: axis.value({path: value})) if axis else values


def _axis_titles(grid: _Grid, labels: Mapping[str, str]) -> list[str]:
    return [swept_title(path, "", labels) for path in grid.paths]


def _paint(
    figure: "Figure", layout: PicturePlace, *, grid: _Grid, panels: Sequence[int], ratios: bool, several_runs: bool
) -> float:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    shown = [grid.bases_s[number] / grid.times_s[number] if ratios else grid.times_s[number] for number in panels]
    most = 1 if layout.narrow else min(MAX_COLUMNS, len(panels))
    fitting = (each for each in range(most, 0, -1) if _texts_fit(shown, _width_pt(figure, each, grid), ratios))
    columns = next(fitting, most)
    grid_rows = -(-len(panels) // columns)
    axes = figure.subplots(grid_rows, columns, squeeze=False)
    scale = _scale(float(np.nanmin(shown)), float(np.nanmax(shown)))
    fastest_s = np.nanmin(np.stack(grid.times_s), axis=0)
    width_pt = _width_pt(figure, columns, grid)
    further_lines = 0
    for position, (number, values) in enumerate(zip(panels, shown, strict=True)):
        axis = axes.flat[position]
        variant, run = map(layout.label, grid.names[number])
        title = f"{variant}, {run}" if several_runs else variant
        further_lines = max(further_lines, panel_title(axis, title, width_pt))
        _paint_cells(axis, values, scale, ratios=ratios, named=_texts_fit(shown, width_pt, ratios))
        if not ratios and len(grid.names) > 1:
            _frame(axis, grid.times_s[number] <= FASTEST_WITHIN * fastest_s, layout)
        _label_axes(axis, grid, layout, width_pt, outer=position % columns == 0)
    for unused in axes.flat[len(panels) :]:
        unused.set_visible(False)
    colours = ScalarMappable(scale, COLOURS)
    bar = figure.colorbar(colours, ax=axes, fraction=0.06, pad=0.02, aspect=25)
    bar.set_label("speed-up" if ratios else "iteration time (s)")
    if isinstance(scale, LogNorm):
        low, high = bar.ax.get_ylim()
        ticks = LogLocator(10, subs=(1, 2, 5)).tick_values(low, high)
        bar.set_ticks([tick for tick in ticks if low <= tick <= high])
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.tick_params(length=0, which="both")
    bar.outline.set_visible(False)
    cell_px = _NARROW_CELL_PX if layout.narrow else _CELL_PX
    height = _ABOVE_PX + further_lines * layout.line_px + max(_LEAST_PX, len(grid.values[1]) * cell_px)
    return grid_rows * height


def _width_pt(figure: "Figure", columns: int, grid: _Grid) -> float:
    """Return about how wide the cells of one of several columns of panels are, beside axis and bar of colours."""
    em_pt = font_pt()
    whole_pt = 72 * figure.get_figwidth()
    axis_pt = max(map(text_width_pt, grid.values[1])) + 2.5 * em_pt
    bar_pt = 0.1 * whole_pt + 5 * em_pt
    return max(em_pt, (whole_pt - bar_pt - axis_pt) / columns - em_pt)


def _scale(low: float, high: float) -> "Normalize":
    from matplotlib.colors import LogNorm, Normalize

    return LogNorm(low, high) if low > 0 and high > LOGARITHMIC_FROM * low else Normalize(low, high)


def _texts_fit(shown: Sequence[Numbers], width_pt: float, ratios: bool) -> bool:
    widest_pt = max(text_width_pt(_cell_text(value, ratios)) for values in shown for value in values.flat)
    return bool(1.15 * widest_pt <= width_pt / shown[0].shape[1])


def _paint_cells(axis: "Axes", values: Numbers, scale: "Normalize", *, ratios: bool, named: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colours = colormaps[COLOURS].with_extremes(bad=_UNKNOWN_COLOUR)
    axis.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=scale, edgecolors="white", linewidth=0.4)
    for row, column in np.ndindex(*values.shape):
        value = float(values[row, column])
        if np.isnan(value):
            continue
        if ratios and value < 1 / FASTEST_WITHIN:
            axis.add_patch(
                Rectangle((column, row), 1, 1, fill=False, hatch="///", edgecolor="white", linewidth=0, alpha=0.5)
            )
        if named:
            ink = "white" if float(scale(value)) < _DARK_BELOW else "black"
            axis.text(column + 0.5, row + 0.5, _cell_text(value, ratios), color=ink, ha="center", va="center")


def _cell_text(value: float, ratio: bool) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.2f}x" if ratio else three_digits(value)


def _frame(axis: "Axes", chosen: npt.NDArray[np.bool_], layout: PicturePlace) -> None:
    """Draw a frame in black on white, which shows on every colour of the map, inside each chosen cell."""
    from matplotlib.patches import Rectangle

    for row, column in np.argwhere(chosen):
        for colour, width in (("white", 3.2), ("black", 1.4)):
            axis.add_patch(
                Rectangle(
                    (column + 0.06, row + 0.06), 0.88, 0.88, fill=False, edgecolor=colour,
                    linewidth=width * layout.scale,
                )
            )  # fmt: skip


def _label_axes(axis: "Axes", grid: _Grid, layout: PicturePlace, width_pt: float, *, outer: bool) -> None:
    across, up = grid.values
    step = every_nth(across, width_pt)
    axis.set_xticks([number + 0.5 for number in range(0, len(across), step)], across[::step])
    axis.set_yticks([number + 0.5 for number in range(len(up))], up if outer else [""] * len(up))
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    titles = _axis_titles(grid, layout.labels)
    axis.set_xlabel(titles[0])
    axis.set_ylabel(titles[1] if outer else "")


def _reading(grid: _Grid) -> str:
    if len(grid.names) == 1:
        return _extremes(grid)
    fastest_s = np.nanmin(np.stack(grid.times_s), axis=0)
    measured = int(np.sum(~np.isnan(fastest_s)))
    several_runs = len({run for _, run in grid.names}) > 1
    wins = [
        f"{f'{variant} in {run}' if several_runs else variant} at {int(np.sum(times_s <= FASTEST_WITHIN * fastest_s))}"
        for (variant, run), times_s in zip(grid.names, grid.times_s, strict=True)
    ]
    reading = f"Of {measured} sweep points, the fastest, or within 1 % of it, are: {list_text(wins)}; frames mark them."
    ratios = [
        (base_s / times_s, name)
        for name, times_s, base_s in zip(grid.names, grid.times_s, grid.bases_s, strict=True)
        if times_s is not base_s
    ]
    if ratios:
        low, high = (pick(float(pick_of(ratio)) for ratio, _ in ratios) for pick, pick_of in _ENDS)
        reading += (
            f" Speed-ups over the first variant are from {ratio_text(low)} to {ratio_text(high)}; "
            "cells are hatched where a variant is over 1 % slower than it."
        )
    return reading


_ENDS = ((min, np.nanmin), (max, np.nanmax))


def _extremes(grid: _Grid) -> str:
    """Return the shortest and longest iteration time of the only variant, and where they are."""
    times_s = grid.times_s[0]
    found = []
    for name, place in (("shortest", np.nanargmin(times_s)), ("longest", np.nanargmax(times_s))):
        row, column = np.unravel_index(int(place), times_s.shape)
        where = ", ".join(
            f"{title} {values[int(number)]}"
            for title, values, number in zip(_axis_titles(grid, {}), grid.values, (column, row), strict=True)
        )
        found.append(f"{name} iteration takes {seconds_text(float(times_s[row, column]))}, at {where}")
    return f"The {' and the '.join(found)}."
