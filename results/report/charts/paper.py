"""Write charts as figures for a paper, as wide as a column or a page, with a legend but no title."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from wanbed.ground.errors import InputError, shortened
from wanbed.ground.files import written_whole
from wanbed.results.records.run_store import slug
from wanbed.results.report.charts.chart import (
    NARROW_FONT_PX,
    WIDE_FONT_PX,
    Chart,
    Drawing,
    LegendEntry,
    PicturePlace,
)
from wanbed.results.report.charts.colours import Style
from wanbed.results.report.charts.figure_options import FigureOptions, Size
from wanbed.results.report.charts.letters import letters_of, line_count, text_width_pt, wrapped
from wanbed.results.report.charts.matplotlib_svg import SETTINGS

Limits = Mapping[str, tuple[float | None, float | None]]

_ROOM = 1.15
"""The factor by which a logarithmic axis reaches beyond the values."""

_FEW_POWERS = 5
"""Below this ratio of highest to lowest value, 1, 2, 5, 10 and so on would be too few ticks."""


def _set_scales(figure: Figure, logarithmic: Collection[str], limits: Limits, chart: str) -> None:
    """Make these axes, ``x`` and ``y``, of all panels logarithmic, and limit them.

    Raise InputError if a value that has to be on a logarithmic axis is not above zero. ``chart`` names the picture.
    """
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        for name in sorted(logarithmic):
            _make_logarithmic(axes, name, chart)
        for name, (low, high) in limits.items():
            if name in logarithmic and low is not None and low <= 0:
                raise InputError(f"--limits {name}={low:g}:: a logarithmic axis begins above 0: give more")
            (axes.set_xlim if name == "x" else axes.set_ylim)(low, high)
            for line in axes.lines:
                line.set_clip_on(True)


def _make_logarithmic(axes: Axes, name: str, chart: str) -> None:
    low, high = axes.dataLim.intervalx if name == "x" else axes.dataLim.intervaly
    if low <= 0:
        raise InputError(f"--log {name}: {chart} has values of {low:g} on it, which no logarithmic axis shows")
    axis, set_limits = (axes.xaxis, axes.set_xlim) if name == "x" else (axes.yaxis, axes.set_ylim)
    if name == "x":
        ticks, texts = list(axes.get_xticks()), [text.get_text() for text in axes.get_xticklabels()]
        locator = axis.get_major_locator()
        axes.set_xscale("log")
        if isinstance(locator, FixedLocator):
            axes.set_xticks(ticks, texts)
            axis.set_minor_locator(NullLocator())
        else:
            _plain_numbers(axis, high / low)
    else:
        axes.set_yscale("log")
        _plain_numbers(axis, high / low)
    set_limits(low / _ROOM, high * _ROOM)


def _plain_numbers(axis: Axis, ratio: float) -> None:
    axis.set_major_locator(MaxNLocator(6) if ratio < _FEW_POWERS else LogLocator(10, subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


DPI = 300

CAPTIONS = "captions.txt"
"""The file beside the figures that has what the report says under each chart."""

_HANDLE_EM, _COLUMN_GAP_EM = 3.2, 1.2

_LINE_EM, _ROW_GAP_EM = 1.2, 0.5

_TYPE_42 = 42

# Without dates, two exports of the same data are equal.
_METADATA: Mapping[str, dict[str, None]] = {
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
    "svg": {"Date": None},
}


def draw_figures(charts: Sequence[Chart], options: FigureOptions | None = None) -> dict[str, bytes]:
    """Return a file with every drawing as ``<name>-<size>`` in each size and format, then the captions, by its name.

    PDF embeds fonts as TrueType (Type 42); PNG has 300 dots per inch. Raise InputError for an option that no chart has
    a use for.
    """
    chosen = options or FigureOptions()
    drawn = _chosen(charts, chosen)
    _check(drawn, chosen)
    files = {
        f"{name}-{size.name}.{form}": content
        for name, chart, drawing in _named(drawn)
        for size in chosen.sizes
        for form, content in _in_each_format(chart, drawing, size, chosen)
    }
    captions = "\n".join(
        f"{chart.name}: {_relabelled(f'{chart.title}. {chart.reading}', chosen.labels)}\n" for chart in drawn
    )
    return {**files, CAPTIONS: captions.encode()}


def _relabelled(text: str, labels: Mapping[str, str]) -> str:
    """Return a text with labels in place of the names in it that stand as whole words."""
    if not labels:
        return text
    # Of names that begin alike, the longest is meant.
    names = "|".join(re.escape(name) for name in sorted(labels, key=len, reverse=True))
    return re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", lambda found: labels[found[0]], text)


def save_figures(figures: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write these files into a folder and return them. Create the folder if it does not exist, but not its parents."""
    folder.mkdir(exist_ok=True)
    for name, content in figures.items():
        with written_whole(folder / name) as partial:
            partial.write_bytes(content)
    return [folder / name for name in figures]


def draw(chart: Chart, drawing: Drawing, size: Size, options: FigureOptions) -> Figure:
    """Return a drawing with its legend as a figure. Draw and save it within ``paper_settings``."""
    layout = _layout(size, options)
    figure = Figure(figsize=(size.width_in, size.height_in or 1))
    FigureCanvasAgg(figure)
    height_pt = drawing.paint(figure, layout) * layout.scale
    _relabel(figure, options.labels)
    _set_scales(figure, options.logarithmic & chart.axes, options.limits if chart.axes else {}, chart.name)
    legend_pt = _add_legend(figure, chart.legend, layout, options.font_pt) if chart.legend else 0.0
    if size.height_in is None:
        figure.set_figheight((height_pt + legend_pt) / 72)
    return figure


@contextmanager
def paper_settings(font_pt: float) -> Iterator[None]:
    """Apply matplotlib's settings for figures of a paper."""
    sizes: dict[Any, Any] = {
        "font.size": font_pt,
        "pdf.fonttype": _TYPE_42,
        "svg.hashsalt": "wanbed",
        "axes.linewidth": 0.6,
        "hatch.linewidth": 0.5,
    }
    with mpl.rc_context({**SETTINGS, **sizes}), letters_of(font_pt):
        yield


def _chosen(charts: Sequence[Chart], options: FigureOptions) -> list[Chart]:
    names = [chart.name for chart in charts]
    for name in options.charts:
        if name not in names:
            raise InputError(f"--chart {shortened(name)}: there is none such, choose of: {', '.join(names)}")
    return [chart for chart in charts if not options.charts or chart.name in options.charts]


def _check(charts: Sequence[Chart], options: FigureOptions) -> None:
    """Raise InputError for a label without its name, and for an axis that no chosen chart has."""
    for option, axes in (("--log", options.logarithmic), ("--limits", frozenset(options.limits))):
        for axis in sorted(axes):
            if not any(axis in chart.axes for chart in charts):
                raise InputError(f"{option} {axis}: no chosen chart has such an axis, leave it out or give --chart")
    if options.labels:
        known = _names(charts, options)
        for name in options.labels:
            if name not in known:
                raise InputError(f"--label {shortened(name)}: no figure says that, choose of: {'; '.join(known)}")


class _Noted(Mapping[str, str]):
    """No labels, but a note of the names for which some could be given."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def __getitem__(self, name: str) -> str:
        self.names[name] = None
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _names(charts: Sequence[Chart], options: FigureOptions) -> list[str]:
    """Return every text that a label may replace, in the order of the figures."""
    noted = _Noted()
    for _, chart, drawing in _named(charts):
        noted.names |= dict.fromkeys(entry.label for entry in chart.legend)
        for size in options.sizes:
            with paper_settings(options.font_pt):
                figure = Figure(figsize=(size.width_in, 1))
                drawing.paint(figure, PicturePlace(size.narrow, labels=noted))
            noted.names |= dict.fromkeys(
                text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel()) if text
            )
    return list(noted.names)


def _layout(size: Size, options: FigureOptions) -> PicturePlace:
    font_px = NARROW_FONT_PX if size.narrow else WIDE_FONT_PX
    return PicturePlace(size.narrow, options.font_pt / font_px, options.logarithmic, options.labels)


def _relabel(figure: Figure, labels: Mapping[str, str]) -> None:
    for axes in figure.axes:
        axes.set_xlabel(labels.get(axes.get_xlabel(), axes.get_xlabel()))
        axes.set_ylabel(labels.get(axes.get_ylabel(), axes.get_ylabel()))


def _named(charts: Sequence[Chart]) -> Iterator[tuple[str, Chart, Drawing]]:
    for chart in charts:
        for position, drawing in enumerate(chart.drawings, start=1):
            parts = (str(position), slug(drawing.name)) if len(chart.drawings) > 1 else ()
            yield "-".join((chart.name, *parts)), chart, drawing


def _in_each_format(chart: Chart, drawing: Drawing, size: Size, options: FigureOptions) -> Iterator[tuple[str, bytes]]:
    with paper_settings(options.font_pt):
        figure = draw(chart, drawing, size, options)
        for form in options.formats:
            drawn = BytesIO()
            figure.savefig(drawn, format=form, dpi=DPI, facecolor="white", metadata=_METADATA[form])
            yield form, drawn.getvalue()


def _add_legend(figure: Figure, entries: Sequence[LegendEntry], layout: PicturePlace, font_pt: float) -> float:
    """Add the legend in as many columns as its labels leave room for, and return its height in points."""
    width_pt = 72 * figure.get_figwidth()
    labels = [layout.label(entry.label) for entry in entries]
    widest_pt = max(map(text_width_pt, labels)) + (_HANDLE_EM + _COLUMN_GAP_EM) * font_pt
    columns = max(1, min(len(entries), int(width_pt // widest_pt)))
    texts = [wrapped(label, width_pt - (_HANDLE_EM + _COLUMN_GAP_EM) * font_pt) for label in labels]
    figure.legend(
        handles=[_handle(entry.style, text, layout) for entry, text in zip(entries, texts, strict=True)],
        loc="outside upper left", ncols=columns, frameon=False, borderpad=0, columnspacing=_COLUMN_GAP_EM,
        handlelength=2.2,
    )  # fmt: skip
    rows = -(-len(texts) // columns)
    lines = sum(map(line_count, texts)) if columns == 1 else rows
    return (lines * _LINE_EM + rows * _ROW_GAP_EM) * font_pt


def _handle(style: Style, text: str, layout: PicturePlace) -> Artist:
    # Matplotlib leaves labels that begin with an underscore out of legends.
    label = text if not text.startswith("_") else "\u200b" + text
    line: Any = style.line or "None"
    if not style.marker and not style.line:
        return Patch(
            facecolor=style.colour, edgecolor=style.hatch_colour, linewidth=0, hatch=3 * style.hatch, label=label
        )
    return Line2D(
        [], [], color=style.colour, marker=style.marker or "None", linestyle=line,
        linewidth=2 * layout.scale, markersize=7 * layout.scale, label=label,
        markerfacecolor=style.colour if style.filled else "white",
    )  # fmt: skip
