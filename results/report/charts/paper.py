"""Write charts as figures for a paper: PDF and PNG, as wide as a column or a page, with a legend but no title."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ground.atomic_write import written_whole
from results.records.run_store import slug
from results.report.charts.chart import Chart, Drawing, LegendEntry
from results.report.charts.drawing.canvas import NARROW_FONT_PX, SETTINGS, WIDE_FONT_PX, Layout
from results.text.number_text import shortened

COLUMN_IN = 3.4
PAGE_IN = 7.0
FONT_PT = 8
DPI = 300

_LEGEND_LINE_PT = 1.5 * FONT_PT
_TYPE_42 = 42
_MAX_LEGEND_LABEL = 30
# Without dates, two exports of the same data are equal.
_METADATA = {"pdf": {"CreationDate": None}, "png": {"Software": None}}


def write_figures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Write every drawing as ``<name>-column`` and ``<name>-page``, each .pdf and .png; return the files.

    The PDF embeds fonts as TrueType (Type 42); the PNG has 300 dots per inch. Create the folder if it does not exist,
    but not its parents. Raise OSError if something cannot be written.
    """
    folder.mkdir(exist_ok=True)
    return [file for name, chart, drawing in _named(charts) for file in _write(chart, drawing, folder / name)]


def _named(charts: Sequence[Chart]) -> Iterator[tuple[str, Chart, Drawing]]:
    for chart in charts:
        for position, drawing in enumerate(chart.drawings, start=1):
            parts = (str(position), slug(drawing.name)) if len(chart.drawings) > 1 else ()
            yield "-".join((chart.name, *parts)), chart, drawing


def _write(chart: Chart, drawing: Drawing, stem: Path) -> list[Path]:
    files = []
    for kind, width_in, font_px in (("column", COLUMN_IN, NARROW_FONT_PX), ("page", PAGE_IN, WIDE_FONT_PX)):
        layout = Layout(kind == "column", FONT_PT / font_px)
        sizes: dict[Any, Any] = {
            "font.size": FONT_PT,
            "pdf.fonttype": _TYPE_42,
            "axes.linewidth": 0.6,
            "hatch.linewidth": 0.5,
        }
        with mpl.rc_context({**SETTINGS, **sizes}):
            figure = Figure(figsize=(width_in, 1))
            FigureCanvasAgg(figure)
            height_pt = drawing.paint(figure, layout) * layout.scale
            columns = _legend_columns(chart.legend, width_in)
            if chart.legend:
                figure.legend(
                    handles=[_handle(entry, layout) for entry in chart.legend], loc="outside upper left",
                    ncols=columns, frameon=False, borderpad=0, columnspacing=1.2, handlelength=2.2,
                )  # fmt: skip
            lines = -(-len(chart.legend) // columns)
            figure.set_figheight((height_pt + lines * _LEGEND_LINE_PT) / 72)
            for form in ("pdf", "png"):
                files.append(stem.with_name(f"{stem.name}-{kind}.{form}"))
                # Drawn in memory: on a full disk, savefig raises what hides the reason.
                drawn = BytesIO()
                figure.savefig(drawn, format=form, dpi=DPI, facecolor="white", metadata=_METADATA[form])
                with written_whole(files[-1]) as partial:
                    partial.write_bytes(drawn.getbuffer())
    return files


def _legend_columns(legend: Sequence[LegendEntry], width_in: float) -> int:
    longest = max((min(len(entry.label), _MAX_LEGEND_LABEL) for entry in legend), default=1)
    entry_in = (0.55 * FONT_PT * longest + 4.2 * FONT_PT) / 72
    return max(1, min(len(legend), int(width_in / entry_in)))


def _handle(entry: LegendEntry, layout: Layout) -> Artist:
    style = entry.style
    cut = shortened(entry.label, _MAX_LEGEND_LABEL)
    # Matplotlib leaves labels that begin with an underscore out of legends.
    label = cut if not cut.startswith("_") else "\u200b" + cut
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
