"""Turn a painter's picture into an SVG element for an HTML page."""

import io
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

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
