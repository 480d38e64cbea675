"""Fit text into a width: measure it, break it into lines, and cut its middle only if even these do not hold it."""

import re
import warnings
from functools import lru_cache

import matplotlib as mpl
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from wanbed.results.text import shortened, visible

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
