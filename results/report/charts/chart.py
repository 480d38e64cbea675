"""Define a chart of the report: its drawings for a page or for paper, its legend, and the text that explains it.

A painter draws on a canvas as wide as the page or paper. Texts and panels fit their widths: a text is measured, broken
into lines, and cut in its middle only if even these do not hold it.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Protocol

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from wanbed.results.report.charts.colours import Style, Styles
from wanbed.results.text import shortened, visible

WIDE_PX = 880

NARROW_PX = 340

WIDE_FONT_PX = 12

NARROW_FONT_PX = 11

_INK = "#333333"

_RULE = "#BBBBBB"

SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.usetex": False,
    "axes.formatter.use_mathtext": False,
    "font.family": "sans-serif",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": _RULE,
    "ytick.color": _RULE,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.7,
    "figure.constrained_layout.use": True,
}
"""Matplotlib's settings for every picture, whatever its file format."""


@dataclass(frozen=True)
class PicturePlace:
    """The place that a picture is painted for: a narrow page or column, or a wide one.

    ``scale`` is the size of a layout pixel in points, 1 on a page; multiply sizes of lines and markers by it.
    ``logarithmic`` names the axes, ``x`` and ``y``, that become logarithmic where a chart allows it.
    ``labels`` replaces names of variants, runs and swept paths, and texts of axes, by those that the user wants.
    """

    narrow: bool
    scale: float = 1.0
    logarithmic: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def line_px(self) -> float:
        """The height of a line of text in layout pixels."""
        return 1.25 * (NARROW_FONT_PX if self.narrow else WIDE_FONT_PX)

    def label(self, name: str) -> str:
        """Return the text that stands for a name in the picture."""
        return self.labels.get(name, name)


def svg(paint: Callable[[Figure, PicturePlace], float], description: str, salt: str, width_px: int) -> Markup:
    """Return one picture as an SVG element. Deterministic; ``salt`` makes its inner references unique."""
    layout = PicturePlace(width_px == NARROW_PX)
    font_px = NARROW_FONT_PX if layout.narrow else WIDE_FONT_PX
    with mpl.rc_context({**SETTINGS, "font.size": font_px, "svg.hashsalt": salt}):
        figure = Figure(figsize=(width_px / 72, 1))
        canvas = FigureCanvasSVG(figure)
        buffer = io.StringIO()
        with warnings.catch_warnings():
            # The browser draws the text with the page's font, not with the one that matplotlib measures it with.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.set_figheight(paint(figure, layout) / 72)
            for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
                patch.set(facecolor="none", edgecolor="none")
            # Figure.savefig draws everything twice where the layout is constrained.
            canvas.print_svg(buffer)  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    # Cut coordinates to a hundredth of a pixel: further digits are invisible, but most of a timeline's size.
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(?<=\.\d\d)\d+", "", path[0]), text)
    box = re.search(r'viewBox="[^"]*"', text)
    opening = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} role="img" '
    return Markup(opening + f'aria-label="{escape(description)}">' + text[text.index(">") + 1 :])  # noqa: S704 - escaped by matplotlib


MAX_LINES = 3

_MEASURED_PT = 100

_HINTED = 1.03
"""Text on a screen is a little wider, because its letters begin at whole pixels."""

_CHUNK = re.compile(r"\s+|[^\s-]+-*|-+")
"""A text may be broken at white space and after hyphens."""


def text_width_pt(text: str, *, bold: bool = False) -> float:
    """Return the width of one line of text in the font and size of ``matplotlib.rcParams``."""
    return _in_pt(sum(_width_em(character, bold) for character in text))


def _in_pt(width_em: float) -> float:
    return width_em * _HINTED * float(mpl.rcParams["font.size"])


@lru_cache(maxsize=4096)
def _width_em(character: str, bold: bool) -> float:
    font = FontProperties(size=_MEASURED_PT, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        width_pt, _, _ = text_to_path.get_text_width_height_descent(character, font, ismath=False)
    return float(width_pt) / _MEASURED_PT


def wrapped(text: str, width_pt: float, lines: int = MAX_LINES, *, bold: bool = False) -> str:
    """Return the ``visible`` text broken into at most ``lines`` lines of ``width_pt``.

    A text that does not fit loses its middle, as ``shortened`` does, since names differ at the end.
    """
    text = visible(text)
    lengths = range(len(text), 0, -1)
    found = (_lines(shortened(text, length), width_pt, lines, bold) for length in lengths)
    return "\n".join(next((each for each in found if each is not None), []))


def line_count(text: str) -> int:
    """Return the number of lines of a text."""
    return text.count("\n") + 1


def _lines(text: str, width_pt: float, most: int, bold: bool) -> list[str] | None:
    """Return the lines of a text, None as soon as they are more than ``most``: a long text is tried at many lengths."""
    lines, filled_em = [""], 0.0
    for chunk in _CHUNK.findall(text):
        if chunk.isspace():
            # A line neither begins with white space nor is broken because of it.
            if lines[-1]:
                lines[-1] += chunk
                filled_em = sum((_width_em(character, bold) for character in chunk), filled_em)
            continue
        widths_em = [_width_em(character, bold) for character in chunk]
        if lines[-1] and _in_pt(sum(widths_em, filled_em)) > width_pt:
            lines.append("")
            filled_em = 0.0
        for character, character_em in zip(chunk, widths_em, strict=True):
            if lines[-1] and _in_pt(filled_em + character_em) > width_pt:
                lines.append("")
                filled_em = 0.0
            lines[-1] += character
            filled_em += character_em
        if len(lines) > most:
            return None
    return [line.rstrip() for line in lines if line]


def interval_bar(axis: Axes, at: float, interval: tuple[float, float], scale: float) -> None:
    """Draw a vertical bar over ``interval`` at x position ``at``.

    The bar is black and its caps are wider than markers, so that it is visible on any marker.
    """
    low, high = interval
    middle = (low + high) / 2
    axis.errorbar(
        at, middle, yerr=high - middle, fmt="none", ecolor="black", elinewidth=1.2 * scale,
        capsize=7 * scale, capthick=1.2 * scale, clip_on=False, zorder=4,
    )  # fmt: skip


_BESIDE_EM = 4.5
"""The width of the axis beside a panel, as a multiple of the font size."""

_GAP_EM = 0.8


def panels(
    figure: Figure, count: int, columns: int, *, sharex: bool = False, sharey: bool = False
) -> tuple[list[Axes], int]:
    """Return the axes of so many panels in columns, the first row first, and the number of rows."""
    rows = -(-count // columns)
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return axes[:count], rows


def panel_width_pt(figure: Figure, columns: int) -> float:
    """Return about how wide the axes of one of several columns of panels are."""
    return figure.get_figwidth() * 72 / columns - _BESIDE_EM * float(mpl.rcParams["font.size"])


def panel_title(axis: Axes, text: str, width_pt: float) -> int:
    """Set the title of a panel, broken into lines of its width; return by how many lines it is higher than one."""
    title = wrapped(text, width_pt)
    axis.set_title(title, fontsize="medium", loc="left")
    return line_count(title) - 1


def every_nth(texts: Sequence[str], width_pt: float) -> int:
    """Return the smallest n for which every nth of these labels fits into its share of an axis of ``width_pt``."""
    widest_pt = max((text_width_pt(text) for text in texts), default=0.0) + _GAP_EM * float(mpl.rcParams["font.size"])
    return max(1, -int(-widest_pt * len(texts) // width_pt))


def spaced(places: Sequence[float], texts: Sequence[str], width_pt: float, *, logarithmic: bool = False) -> list[int]:
    """Return the positions of those labels that fit beneath an axis, the last one among them.

    ``places`` rise, and span the axis of ``width_pt`` from zero, or from the first place if it is ``logarithmic``. Of
    equally spaced ones every nth is kept.
    """
    steps = [after - before for before, after in pairwise(places)]
    if not logarithmic and steps and max(steps) < 1.01 * min(steps):
        beyond = places[0] / steps[0]
        nth = every_nth(texts, width_pt * len(texts) / (len(texts) + max(0.0, beyond)))
        return list(range(len(places) - 1, -1, -nth))[::-1]
    at = [math.log(place) for place in places] if logarithmic else list(places)
    low = at[0] if logarithmic else min(0.0, at[0])
    per_unit = width_pt / ((at[-1] - low) or 1)
    gap_pt = _GAP_EM * float(mpl.rcParams["font.size"])
    kept: list[int] = []
    edge_pt = math.inf
    for number in range(len(at) - 1, -1, -1):
        middle_pt, half_pt = (at[number] - low) * per_unit, text_width_pt(texts[number]) / 2
        if middle_pt + half_pt + gap_pt <= edge_pt:
            kept.append(number)
            edge_pt = middle_pt - half_pt
    return kept[::-1]


Painter = Callable[[Figure, PicturePlace], float]
"""``paint(figure, layout)`` draws into a figure of a given width and returns the height it needs, in layout pixels."""


@dataclass(frozen=True)
class LegendEntry:
    """An entry of the legend: a style and the label that explains it."""

    label: str
    style: Style


@dataclass(frozen=True)
class Drawing:
    """One picture. ``heading`` distinguishes several pictures of a chart, and ``name`` their files.

    ``description`` is for screen readers. ``salt`` must differ for every picture of a page, so that their inner
    references do not collide. Text stays text in the SVG, and is never interpreted as mathematics.
    """

    description: str
    salt: str
    paint: Painter = field(compare=False)
    heading: LegendEntry | None = None
    name: str = ""

    @cached_property
    def wide(self) -> Markup:
        """The picture as SVG for a wide page."""
        return svg(self.paint, self.description, f"{self.salt}-wide", WIDE_PX)

    @cached_property
    def narrow(self) -> Markup:
        """The picture as SVG for a narrow page."""
        return svg(self.paint, self.description, f"{self.salt}-narrow", NARROW_PX)


@dataclass(frozen=True)
class Chart:
    """A titled set of drawings with a legend and a ``reading``: an explanation computed from the data.

    ``name`` is the base name of the files that contain its figures. ``axes`` names those of its axes, ``x`` and ``y``,
    that a user may make logarithmic or limit.
    """

    name: str
    title: str
    legend: tuple[LegendEntry, ...]
    drawings: tuple[Drawing, ...]
    reading: str
    axes: frozenset[str] = frozenset()


class Series(Protocol):
    """One variant of one run, as a chart draws it."""

    @property
    def variant(self) -> str:
        """The name of the variant."""

    @property
    def run(self) -> str:
        """The label of the run."""


def series_names(series: Sequence[Series]) -> tuple[list[str], list[str]]:
    """Return the variants and the runs of series, in the order in which they come."""
    return list(dict.fromkeys(each.variant for each in series)), list(dict.fromkeys(each.run for each in series))


def series_legend(styles: Styles, variants: Iterable[str], runs: Iterable[str]) -> tuple[LegendEntry, ...]:
    """Return the legend of each variant's colour and, for several runs, of each run's line."""
    shown = list(runs)
    of_runs = [LegendEntry(run, styles.runs[run]) for run in shown] if len(shown) > 1 else []
    return (*(LegendEntry(variant, styles.variants[variant]) for variant in variants), *of_runs)


def points_legend(styles: Styles, variants: Iterable[str], runs: Iterable[str]) -> tuple[LegendEntry, ...]:
    """Return the legend of a chart of points: each variant's marker and, for several runs, each run's filling."""
    entries = series_legend(styles, variants, runs)
    return tuple(
        LegendEntry(entry.label, replace(entry.style, marker=entry.style.marker or "o", line="")) for entry in entries
    )
