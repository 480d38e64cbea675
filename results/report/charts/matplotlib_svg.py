"""Draw a picture of a page with matplotlib, and hold its settings for every picture."""

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from wanbed.results.report.charts.svg_figure import GRID, INK, RULE

SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.usetex": False,
    "axes.formatter.use_mathtext": False,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.7,
    "figure.constrained_layout.use": True,
}
"""Matplotlib's settings for every picture, whatever its file format."""


def svg_elements(paint: Callable[[Figure], float], salt: str, width_px: int, font_px: int) -> tuple[float, Markup]:
    """Return the height of a picture and the contents of its SVG element.

    Deterministic; ``salt`` makes its inner references unique.
    """
    with mpl.rc_context({**SETTINGS, "font.size": font_px, "svg.hashsalt": salt}):
        figure = Figure(figsize=(width_px / 72, 1))
        canvas = FigureCanvasSVG(figure)
        buffer = io.StringIO()
        with warnings.catch_warnings():
            # The browser draws the text with the page's font, not with the one that matplotlib measures it with.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            height_px = paint(figure)
            figure.set_figheight(height_px / 72)
            for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
                patch.set(facecolor="none", edgecolor="none")
            # Figure.savefig draws everything twice where the layout is constrained.
            canvas.print_svg(buffer)  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    text = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    # Cut coordinates to a hundredth of a pixel: further digits are invisible, but most of a timeline's size.
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(?<=\.\d\d)\d+", "", path[0]), text)
    return height_px, Markup(text)  # noqa: S704 - escaped by matplotlib
