"""Lay out pictures of several panels: their titles, and labels beneath an axis that do not touch each other."""

import math
from collections.abc import Sequence
from itertools import pairwise

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbed.results.report.charts.drawing.fitted_text import line_count, text_width_pt, wrapped

_BESIDE_EM = 4.5
"""The width of the axis beside a panel, as a multiple of the font size."""
_GAP_EM = 0.8


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
