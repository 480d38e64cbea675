"""Define what figures for a paper look like: sizes, file formats, labels, and axes, checked as the user wrote them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wanbed.ground.errors import InputError, shortened, shown

FORMATS = ("pdf", "png", "svg")

MIN_FONT_PT, MAX_FONT_PT = 4.0, 30.0

MIN_SIZE_IN, MAX_SIZE_IN = 1.0, 40.0

MAX_LABEL_CHARACTERS = 80

MAX_LIMIT = 1e12
"""The largest end of an axis: more than any axis shows, and matplotlib still computes with it."""

_UNITS_IN = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72}

_LENGTH = r"(\d+(?:\.\d+)?)\s*(in|cm|mm|pt)"

_SIZE = re.compile(rf"{_LENGTH}(?:\s*x\s*{_LENGTH})?", re.ASCII)

_MAX_CHARACTERS = 60

_NARROW_BELOW_IN = 5.0


@dataclass(frozen=True)
class Size:
    """The width of a figure, and its height if that does not follow from the content. ``name`` ends its file's name."""

    name: str
    width_in: float
    height_in: float | None = None

    @property
    def narrow(self) -> bool:
        """Tell whether the figure is laid out for a column, its panels one below the other."""
        return self.width_in < _NARROW_BELOW_IN

    @classmethod
    def parse(cls, text: str) -> "Size":
        """Parse ``column``, ``page``, a width like ``3.3in``, or width and height like ``85mmx60mm``."""
        if text in SIZES:
            return SIZES[text]
        match = _SIZE.fullmatch(text.strip()) if len(text) <= _MAX_CHARACTERS else None
        if match is None:
            raise InputError(
                f"--size {shortened(text)}: not a size: give {', '.join(SIZES)}, a width like 3.3in, or both like "
                f"85mmx60mm ({', '.join(_UNITS_IN)})"
            )
        lengths = [float(number) * _UNITS_IN[unit] for number, unit in (match.group(1, 2), match.group(3, 4)) if number]
        for length_in in lengths:
            if not MIN_SIZE_IN <= length_in <= MAX_SIZE_IN:
                raise InputError(
                    f"--size {shortened(text)}: {length_in:.3g} inches: give {MIN_SIZE_IN:g} to {MAX_SIZE_IN:g} inches"
                )
        # A second point in a file's name confuses LaTeX.
        name = "x".join(str(round(25.4 * length_in)) for length_in in lengths) + "mm"
        return cls(name, *lengths)


SIZES = {"column": Size("column", 3.4), "page": Size("page", 7.0)}


@dataclass(frozen=True)
class FigureOptions:
    """The appearance of figures.

    ``charts`` names the charts to write, all if empty. ``labels`` gives texts that replace names of variants, runs,
    datacenters and swept paths, and texts of axes. ``logarithmic`` and ``limits`` concern the axes ``x`` and ``y`` of
    the chosen charts; an end of limits may be None.
    """

    charts: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = tuple(SIZES.values())
    formats: tuple[str, ...] = ("pdf", "png")
    font_pt: float = 8.0
    labels: Mapping[str, str] = field(default_factory=dict)
    logarithmic: frozenset[str] = frozenset()
    limits: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        *,
        charts: Sequence[str] | None = None,
        sizes: Sequence[str] | None = None,
        formats: Sequence[str] | None = None,
        font_pt: float | None = None,
        labels: Sequence[str] | None = None,
        logarithmic: Sequence[str] | None = None,
        limits: Sequence[str] | None = None,
    ) -> "FigureOptions":
        """Parse the options as the user wrote them; the defaults replace what is empty. Raise InputError."""
        usual = cls()
        for each in formats or ():
            if each not in FORMATS:
                raise InputError(
                    f"--figure-format {shortened(each)}: there is none such, choose of: {', '.join(FORMATS)}"
                )
        if font_pt is not None and not MIN_FONT_PT <= font_pt <= MAX_FONT_PT:
            raise InputError(f"--font-size {font_pt:g}: give {MIN_FONT_PT:g} to {MAX_FONT_PT:g} points")
        return cls(
            tuple(dict.fromkeys(charts or ())),
            tuple(dict.fromkeys(map(Size.parse, sizes or ()))) or usual.sizes,
            tuple(dict.fromkeys(formats or ())) or usual.formats,
            usual.font_pt if font_pt is None else font_pt,
            dict(_label(text) for text in labels or ()),
            frozenset(_axis("--log", text, text) for text in logarithmic or ()),
            dict(_limits(text) for text in limits or ()),
        )


def _label(text: str) -> tuple[str, str]:
    name, equals, label = text.partition("=")
    if not (name and equals and label.strip()):
        raise InputError(f"--label {shortened(text)}: write it like 'one connection=TCP, 1 connection'")
    label = label.strip()
    if len(label) > MAX_LABEL_CHARACTERS or not label.isprintable():
        raise InputError(f"--label {shortened(text)}: give a text of 1 to {MAX_LABEL_CHARACTERS} printable characters")
    return name.strip(), label


def _axis(option: str, text: str, name: str) -> str:
    if name not in ("x", "y"):
        raise InputError(f"{option} {shortened(text)}: no axis {shown(name)}, choose of: x, y")
    return name


def _limits(text: str) -> tuple[str, tuple[float | None, float | None]]:
    name, equals, ends = text.partition("=")
    low, colon, high = ends.partition(":")
    try:
        found = [_number(end) if end.strip() else None for end in (low, high)]
    except ValueError:
        found = []
    known = [end for end in found if end is not None]
    if not (equals and colon and known) or not all(map(math.isfinite, known)) or known != sorted(set(known)):
        raise InputError(
            f"--limits {shortened(text)}: write it like y=0:2.5, the lower end first; one of them may be left out"
        )
    if any(abs(end) > MAX_LIMIT for end in known):
        raise InputError(f"--limits {shortened(text)}: give ends from {-MAX_LIMIT:g} to {MAX_LIMIT:g}")
    return _axis("--limits", text, name.strip()), (found[0], found[1])


def _number(text: str) -> float:
    # Python reads more as a number than is meant by one: digits of other scripts, and 1_0 as 10.
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)
