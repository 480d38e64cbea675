"""Measure text, break it into lines of a width, and choose the labels that fit beneath an axis.

Text is measured in the letters of matplotlib's font, which is read without matplotlib: it takes a tenth of a second.
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from PIL import ImageFont

from wanbed.results.text import shortened, visible

MAX_LINES = 3

_FONT_PT: ContextVar[float] = ContextVar("the size of letters in points", default=10.0)

_UNITS_PER_EM = 2048
"""At this size every advance of the font is a whole number."""

_HINTED = 1.03
"""Text on a screen is a little wider, because its letters begin at whole pixels."""

_CHUNK = re.compile(r"\s+|[^\s-]+-*|-+")
"""A text may be broken at white space and after hyphens."""

GAP_EM = 0.8
"""The least distance of labels side by side."""


@contextmanager
def letters_of(font_pt: float) -> Iterator[None]:
    """Measure text as of this size within the context."""
    before = _FONT_PT.set(font_pt)
    try:
        yield
    finally:
        _FONT_PT.reset(before)


def font_pt() -> float:
    """Return the size of letters in points."""
    return _FONT_PT.get()


def text_width_pt(text: str, *, bold: bool = False) -> float:
    """Return the width of one line of text in letters of ``font_pt``."""
    return _in_pt(sum(_width_em(character, bold) for character in text))


def _in_pt(width_em: float) -> float:
    return width_em * _HINTED * font_pt()


@lru_cache(maxsize=4096)
def _width_em(character: str, bold: bool) -> float:
    return _font(bold).getlength(character) / _UNITS_PER_EM


@cache
def _font(bold: bool) -> ImageFont.FreeTypeFont:
    found = find_spec("matplotlib")
    assert found is not None
    assert found.origin is not None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    file = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / name
    return ImageFont.truetype(str(file), _UNITS_PER_EM, layout_engine=ImageFont.Layout.BASIC)


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


def every_nth(texts: Sequence[str], width_pt: float) -> int:
    """Return the smallest n for which every nth of these labels fits into its share of an axis of ``width_pt``."""
    widest_pt = max((text_width_pt(text) for text in texts), default=0.0) + GAP_EM * font_pt()
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
    gap_pt = GAP_EM * font_pt()
    kept: list[int] = []
    edge_pt = math.inf
    for number in range(len(at) - 1, -1, -1):
        middle_pt, half_pt = (at[number] - low) * per_unit, text_width_pt(texts[number]) / 2
        if middle_pt + half_pt + gap_pt <= edge_pt:
            kept.append(number)
            edge_pt = middle_pt - half_pt
    return kept[::-1]
