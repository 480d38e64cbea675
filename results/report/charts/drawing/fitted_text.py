"""Fit text into a width: measure it, break it into lines, and cut its middle only if even these do not hold it."""

import re
import warnings
from functools import lru_cache

import matplotlib as mpl
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from results.text.number_text import shortened, visible

MAX_LINES = 3

_MEASURED_PT = 100
_HINTED = 1.03
"""Text on a screen is a little wider, because its letters begin at whole pixels."""
_CHUNK = re.compile(r"\s+|[^\s-]+-*|-+")
"""A text may be broken at white space and after hyphens."""


def text_width_pt(text: str, *, bold: bool = False) -> float:
    """Return the width of one line of text in the font and size of ``matplotlib.rcParams``."""
    return sum(_width_em(character, bold) for character in text) * _HINTED * float(mpl.rcParams["font.size"])


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
    found = (_lines(shortened(text, length), width_pt, bold) for length in lengths)
    return "\n".join(next((each for each in found if len(each) <= lines), []))


def line_count(text: str) -> int:
    """Return the number of lines of a text."""
    return text.count("\n") + 1


def _lines(text: str, width_pt: float, bold: bool) -> list[str]:
    lines = [""]
    for chunk in _CHUNK.findall(text):
        if text_width_pt((lines[-1] + chunk).rstrip(), bold=bold) > width_pt and lines[-1]:
            lines.append("")
        for character in chunk if lines[-1] else chunk.lstrip():
            if text_width_pt((lines[-1] + character).rstrip(), bold=bold) > width_pt and lines[-1]:
                lines.append("")
            lines[-1] += character
    return [line.rstrip() for line in lines if line.strip()]
