"""Define a chart of the report: its drawings for a page or for paper, its legend, and the text that explains it.

A painter draws on a canvas as wide as the page or paper. Texts and panels fit their widths: a text is measured, broken
into lines, and cut in its middle only if even these do not hold it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from wanbed.results.report.charts.colours import Style, Styles
from wanbed.results.report.charts.letters import font_pt, letters_of, line_count, wrapped
from wanbed.results.report.charts.svg_figure import FIGURE_X, SvgAxes, SvgFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE_PX = 880

NARROW_PX = 340

WIDE_FONT_PX = 12

NARROW_FONT_PX = 11

Numbers = npt.NDArray[np.float64]


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


def interval_bar(axis: "Axes", at: float, interval: tuple[float, float], scale: float) -> None:
    """Draw a vertical bar over ``interval`` at x position ``at``.

    The bar is black and its caps are wider than markers, so that it is visible on any marker.
    """
    low, high = interval
    middle = (low + high) / 2
    axis.errorbar(
        at, middle, yerr=high - middle, fmt="none", ecolor="black", elinewidth=1.2 * scale,
        capsize=7 * scale, capthick=1.2 * scale, clip_on=False, zorder=4,
    )  # fmt: skip


def rectangles(
    axis: "Axes", left: Numbers, right: Numbers, top: Numbers, bottom: Numbers, *, colour: str, edge: str = "none",
    width: float = 0,
) -> None:  # fmt: skip
    """Draw many rectangles as one outline, which keeps the page small."""
    if isinstance(axis, SvgAxes):
        axis.rectangles(left, right, top, bottom, color=colour, edgecolor=edge, linewidth=width)
        return
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = np.stack(
        [np.stack([left, right, right, left, left], 1), np.stack([top, top, bottom, bottom, top], 1)], axis=2
    )
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    outline = Path(corners.reshape(-1, 2), np.tile(np.array(codes, dtype=np.uint8), len(left)))
    # The limits are set by the painter: an artist, unlike a patch, is not searched for them corner by corner.
    axis.add_artist(PathPatch(outline, facecolor=colour, edgecolor=edge, linewidth=width))


def segments(axis: "Axes", ends: Numbers, *, colour: str, width: float) -> None:
    """Draw segments of shape (n, 2, 2), start and end, each x and y, as one outline."""
    if isinstance(axis, SvgAxes):
        axis.segments(ends, color=colour, linewidth=width)
        return
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    codes = np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=np.uint8), len(ends))
    axis.add_patch(PathPatch(Path(ends.reshape(-1, 2), codes), fill=False, edgecolor=colour, linewidth=width))


def heading_across(figure: "Figure", axis: "Axes", x: float, y: float, text: str) -> None:
    """Write a bold text that ends above ``y`` of an axis, and begins at a share of the whole figure's width."""
    if isinstance(axis, SvgAxes):
        axis.text(x, y, text, transform=FIGURE_X, va="bottom", fontweight="bold")
        return
    from matplotlib.transforms import blended_transform_factory

    across = blended_transform_factory(figure.transFigure, axis.transData)
    axis.text(x, y, text, transform=across, va="bottom", fontweight="bold", in_layout=False)


_BESIDE_EM = 4.5
"""The width of the axis beside a panel, as a multiple of the font size."""


def panels(
    figure: "Figure", count: int, columns: int, *, sharex: bool = False, sharey: bool = False
) -> tuple[list["Axes"], int]:
    """Return the axes of so many panels in columns, the first row first, and the number of rows."""
    rows = -(-count // columns)
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return axes[:count], rows


def panel_width_pt(figure: "Figure", columns: int) -> float:
    """Return about how wide the axes of one of several columns of panels are."""
    return figure.get_figwidth() * 72 / columns - _BESIDE_EM * font_pt()


def panel_title(axis: "Axes", text: str, width_pt: float) -> int:
    """Set the title of a panel, broken into lines of its width; return by how many lines it is higher than one."""
    title = wrapped(text, width_pt)
    axis.set_title(title, fontsize="medium", loc="left")
    return line_count(title) - 1


Painter = Callable[["Figure", PicturePlace], float]
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
    references do not collide. Text stays text in the SVG, and is never interpreted as mathematics. A painter that is
    ``plain`` needs no more of a figure than ``SvgFigure`` has, so that a page is drawn without matplotlib.
    """

    description: str
    salt: str
    paint: Painter = field(compare=False)
    heading: LegendEntry | None = None
    name: str = ""
    plain: bool = False

    @cached_property
    def wide(self) -> Markup:
        """The picture as SVG for a wide page."""
        return self._svg(f"{self.salt}-wide", WIDE_PX, WIDE_FONT_PX)

    @cached_property
    def narrow(self) -> Markup:
        """The picture as SVG for a narrow page."""
        return self._svg(f"{self.salt}-narrow", NARROW_PX, NARROW_FONT_PX)

    def _svg(self, salt: str, width_px: int, font_px: int) -> Markup:
        """Return the picture as an SVG element. Deterministic; ``salt`` makes its inner references unique."""
        layout = PicturePlace(width_px == NARROW_PX)
        with letters_of(font_px):
            if self.plain:
                figure = SvgFigure(width_px)
                height_px = self.paint(cast("Figure", figure), layout)
                elements = figure.svg(height_px, salt)
            else:
                from wanbed.results.report.charts.matplotlib_svg import svg_elements

                height_px, elements = svg_elements(lambda figure: self.paint(figure, layout), salt, width_px, font_px)
        family = "'DejaVu Sans', sans-serif"
        return Markup(
            '<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {} {}" role="img" aria-label="{}" '
            'style="font: {}px {}">{}</svg>'
        ).format(width_px, f"{height_px:g}", escape(self.description), font_px, family, elements)


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
