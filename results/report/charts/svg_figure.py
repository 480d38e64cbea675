"""Draw a picture of a page as SVG, with the part of matplotlib's interface that painters of plain charts use.

To import matplotlib, and to draw the charts of a small report by it, takes more processor time than to simulate and to
store the run. So the charts that every report has are drawn here, by the same painters that draw them with matplotlib
for a paper. Names, arguments and sizes are matplotlib's: lengths are points, one of which is a pixel of the page.

A painter sets the limits of both axes, the upper ones of lines excepted. What matplotlib alone can do,
like logarithmic axes and maps of colours, a chart draws with matplotlib on a page too.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from wanbed.results.report.charts.letters import font_pt, line_count, text_width_pt

Numbers = npt.NDArray[np.float64]

INK = "#333333"

RULE = "#BBBBBB"

GRID = "#E6E6E6"

_RULE_PT, _GRID_PT = 0.8, 0.8

_TICK_PT, _TICK_GAP_PT, _LABEL_GAP_PT, _TITLE_GAP_PT = 3.5, 3.5, 4.0, 6.0
"""The length of a tick, and the distances of its label from it, of the axis' label from that, and of a title."""

_EDGE_PT, _BETWEEN_PT = 3.0, 11.0
"""The distances of everything from the picture's edges, and of panels from one another."""

_LINE_EM = 1.2

_CAPITAL_EM, _DESCENT_EM = 0.73, 0.24
"""The reach of capital letters above the line that text stands on, and of any letter below it."""

_DASHES = {"--": (3.7, 1.6), ":": (1.0, 1.65), "-.": (6.4, 1.6, 1.0, 1.6)}
"""The dashes and gaps of lines, as multiples of their width."""

_ROOM = 0.05
"""The room above lines, as a share of what they span."""

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

_MOST_TICKS = 9

_ALONG_EM, _UP_EM = 3.0, 2.0
"""The least distance of the ticks of a horizontal and of a vertical axis."""

GRID_LAYER, AREA_LAYER, LINE_LAYER, TEXT_LAYER = 0.5, 1.0, 2.0, 3.0
"""The order of drawing, later over earlier: matplotlib's ``zorder`` where nothing else is asked for."""


def _number(value: float) -> str:
    """Return a coordinate to a hundredth of a pixel: further digits are invisible, but most of a timeline's size."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _numbers(values: Numbers) -> list[str]:
    return [f"{value:g}" for value in np.round(values, 2).tolist()]


def _colour(colour: str | tuple[float, ...]) -> str:
    if isinstance(colour, str):
        return colour.lower()
    red, green, blue, opacity = colour
    return f"rgba({255 * red:g}, {255 * green:g}, {255 * blue:g}, {opacity:g})"


def _look(
    fill: str | tuple[float, ...] = "none", stroke: str | tuple[float, ...] = "none", width: float = 0, line: str = "-"
) -> str:
    """Return the attribute of a shape's colours and line."""
    look = f"fill: {_colour(fill)}"
    if stroke != "none" and width:
        look += f"; stroke: {_colour(stroke)}; stroke-width: {_number(width)}"
        if line in _DASHES:
            look += f"; stroke-dasharray: {','.join(_number(width * each) for each in _DASHES[line])}"
    return f'style="{look}"'


def _path(outline: str, look: str) -> str:
    return f'<path d="{outline}" {look}/>'


def _polyline(x: Numbers, y: Numbers) -> str:
    return "M " + " L ".join(f"{one} {other}" for one, other in zip(_numbers(x), _numbers(y), strict=True))


def _marker(kind: str, x: float, y: float, size: float, look: str) -> str:
    half = size / 2
    if kind == "o":
        return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(half)}" {look}/>'
    if kind == "D":
        half = size / math.sqrt(2)
    corners = {
        "s": ((-half, -half), (half, -half), (half, half), (-half, half)),
        "^": ((0, -half), (half, half), (-half, half)),
        "v": ((0, half), (half, -half), (-half, -half)),
        "D": ((0, -half), (half, 0), (0, half), (-half, 0)),
    }[kind]
    across, up = np.array(corners).T
    return _path(_polyline(x + across, y + up) + " Z", look)


def _spread(places: Numbers, apart_pt: float) -> Numbers:
    """Return the points of a line that are closest to places on it, each so far from the next."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(places, axis=0).T))])
    wanted = np.arange(0, along[-1] + apart_pt / 2, apart_pt)
    after = np.clip(np.searchsorted(along, wanted), 1, max(1, len(along) - 1))
    chosen = np.where(wanted - along[after - 1] < along[np.minimum(after, len(along) - 1)] - wanted, after - 1, after)
    found: Numbers = places[np.unique(np.minimum(chosen, len(along) - 1))]
    return found


def _text(
    text: str, x: float, y: float, *, across: str, up: str, turned: bool = False, colour: str = INK, bold: bool = False
) -> str:
    """Return each line of a text as an element. ``y`` is the ``top``, ``center`` or ``bottom`` of them all."""
    em, lines = font_pt(), text.split("\n")
    height = _LINE_EM * em * (len(lines) - 1)
    first = (
        y
        + {
            "top": _CAPITAL_EM * em,
            "center": (_CAPITAL_EM * em - height) / 2,
            "bottom": -_DESCENT_EM * em - height,
        }[up]
    )
    anchor = {"left": "start", "center": "middle", "right": "end"}[across]
    look = f"fill: {_colour(colour)}; text-anchor: {anchor}" + ("; font-weight: bold" if bold else "")
    turn = f' transform="rotate(-90 {_number(x)} {_number(y)})"' if turned else ""
    heights = (_number(first + _LINE_EM * em * number) for number in range(len(lines)))
    return "".join(
        f'<text x="{_number(x)}" y="{height}" style="{look}"{turn}>{escape(line)}</text>'
        for height, line in zip(heights, lines, strict=True)
    )


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Return multiples of 1, 2, 2.5 or 5 times a power of ten from ``low`` to ``high``, as matplotlib chooses them.

    They have at most ``most`` intervals, unless two ticks take more.
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [step * power for step in (*(step / 10 for step in _STEPS[:-1]), *_STEPS)]
    largest = next(number for number, step in enumerate(steps) if step * most >= (high - low) * (1 - 1e-10))
    found: list[float] = []
    for step in reversed(steps[: largest + 1]):
        found = [number * step for number in range(math.ceil(low / step - 1e-10), math.floor(high / step + 1e-10) + 1)]
        if len(found) > 1:
            break
    return found


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Return the ticks as text, all with the decimals that tell the closest apart."""
    decimals = next(
        (each for each in range(12) if all(math.isclose(round(tick, each), tick, abs_tol=1e-14) for tick in ticks)), 12
    )
    return [f"{tick:.{decimals}f}".replace("-", "\u2212") for tick in ticks]


@dataclass(frozen=True)
class _Place:
    """A panel's rectangle in the picture, y down, and the limits of its axes."""

    left: float
    right: float
    top: float
    bottom: float
    x_limits: tuple[float, float]
    y_limits: tuple[float, float]
    figure_pt: float
    """The width of the whole picture."""

    def x(self, value: Any) -> Any:
        """Return the place of a number, or of an array, on the horizontal axis."""
        low, high = self.x_limits
        return self.left + (value - low) * ((self.right - self.left) / (high - low))

    def y(self, value: Any) -> Any:
        """Return the place of a number, or of an array, on the vertical axis."""
        low, high = self.y_limits
        return self.bottom + (value - low) * ((self.top - self.bottom) / (high - low))


@dataclass
class _Axis:
    """The text beside one axis of a panel. ``places`` are None for ticks that fit."""

    label: str = ""
    limits: tuple[float, float] = (0.0, 1.0)
    drawn: list[float] = field(default_factory=list)
    """The least and the largest number of each line."""
    places: list[float] | None = None
    texts: list[str] = field(default_factory=list)
    most: int | None = None
    ticks_pt: float = _TICK_PT
    named: bool = True
    gridded: bool = False

    def set_limits(self, low: float, high: float | None) -> None:
        """Set the numbers at both ends. Without the upper one it lies a little beyond what is drawn by now."""
        if high is None:
            least, largest = min(self.drawn, default=low), max(self.drawn, default=low)
            high = largest + _ROOM * (largest - least)
            high = high if high > low else low + 1
        self.limits = (float(low), float(high))

    def ticks(self, length_pt: float, least_em: float) -> tuple[list[float], list[str]]:
        """Return the ticks within the limits of an axis of this length, and their texts."""
        low, high = sorted(self.limits)
        if self.places is None:
            most = self.most or min(_MOST_TICKS, max(1, int(length_pt / (least_em * font_pt()))))
            places = nice_ticks(low, high, most)
            return places, tick_texts(places)
        slack = 1e-9 * (high - low)
        texts = self.texts or tick_texts(self.places)
        shown = [
            (place, text)
            for place, text in zip(self.places, texts, strict=True)
            if low - slack <= place <= high + slack
        ]
        return [place for place, _ in shown], [text for _, text in shown]


@dataclass
class Spine:
    """One line of a panel's frame."""

    visible: bool

    def set_visible(self, visible: bool) -> None:
        """Say whether it is drawn."""
        self.visible = visible


@dataclass(frozen=True)
class _Mark:
    """Something drawn in a panel: its SVG at the panel's place."""

    layer: float
    clipped: bool
    draw: Callable[[_Place], str]


FIGURE_X, PANEL_X = "x of the figure", "x of the panel"
"""Places of text whose x is a share of the figure's width, or of the panel's, and whose y is a number of the axis."""


class SvgAxes:
    """One panel: what is drawn in it, and what is written around it."""

    def __init__(self) -> None:
        """Begin with nothing drawn."""
        self.visible = True
        self.title = ""
        self.horizontal, self.vertical = _Axis(), _Axis()
        self.spines = {"left": Spine(True), "bottom": Spine(True)}
        self._marks: list[_Mark] = []

    def _add(self, layer: float, draw: Callable[[_Place], str], *, clipped: bool = True) -> None:
        self._marks.append(_Mark(layer, clipped, draw))

    def set_visible(self, visible: bool) -> None:
        """Say whether it is drawn; it keeps its place if not."""
        self.visible = visible

    def set_title(self, text: str, **_: Any) -> None:
        """Set the title above its left edge."""
        self.title = text

    def set_xlabel(self, text: str) -> None:
        """Set the text beneath the horizontal axis."""
        self.horizontal.label = text

    def set_ylabel(self, text: str) -> None:
        """Set the text beside the vertical axis."""
        self.vertical.label = text

    def set_xlim(self, low: float, high: float | None = None) -> None:
        """Set the numbers at the left and the right edge; without a right one, all lines that are drawn have room."""
        self.horizontal.set_limits(low, high)

    def set_ylim(self, low: float, high: float | None = None) -> None:
        """Set the numbers at the lower and the upper edge; without an upper one, all lines that are drawn have room."""
        self.vertical.set_limits(low, high)

    def set_xticks(self, places: Iterable[float], texts: Iterable[str] = ()) -> None:
        """Set the ticks of the horizontal axis."""
        self.horizontal.places, self.horizontal.texts = list(places), list(texts)

    def set_yticks(self, places: Iterable[float], texts: Iterable[str] = ()) -> None:
        """Set the ticks of the vertical axis."""
        self.vertical.places, self.vertical.texts = list(places), list(texts)

    def set_yticklabels(self, texts: Iterable[str]) -> None:
        """Set the texts of the ticks of the vertical axis."""
        self.vertical.texts = list(texts)

    def tick_params(self, axis: str = "both", *, length: float | None = None, labelbottom: bool | None = None) -> None:
        """Set how long ticks are, and whether those beneath have texts."""
        for name, own in (("x", self.horizontal), ("y", self.vertical)):
            if length is not None and axis in (name, "both"):
                own.ticks_pt = length
        if labelbottom is not None:
            self.horizontal.named = labelbottom

    def locator_params(self, axis: str, nbins: int) -> None:
        """Set the most intervals between ticks that are chosen."""
        (self.horizontal if axis == "x" else self.vertical).most = nbins

    def grid(self, axis: str) -> None:
        """Draw lines through the panel at the ticks of an axis."""
        (self.horizontal if axis == "x" else self.vertical).gridded = True

    def get_yaxis_transform(self) -> str:
        """Return the place of text by a share of the panel's width and a number of the vertical axis."""
        return PANEL_X

    def plot(
        self,
        x: Iterable[float],
        y: Iterable[float],
        *,
        color: str,
        linestyle: str = "-",
        linewidth: float = 1.5,
        marker: str = "",
        markersize: float = 6,
        markerfacecolor: str = "",
        markevery: float | None = None,
        clip_on: bool = True,
    ) -> None:
        """Draw a line through points, or markers, or both.

        Markers are at all points, or at those closest to places ``markevery`` of the panel's diagonal apart.
        """
        across, up = (np.array(list(each), float) for each in (x, y))
        for axis, values in ((self.horizontal, across), (self.vertical, up)):
            axis.drawn += [float(values.min()), float(values.max())] if len(values) else []
        if linestyle != "none":
            look = _look(stroke=color, width=linewidth, line=linestyle)
            self._add(LINE_LAYER, lambda at: _path(_polyline(at.x(across), at.y(up)), look), clipped=clip_on)
        if marker:
            filled = _look(markerfacecolor or color, color, 1)

            def draw(at: _Place) -> str:
                places = np.stack([at.x(across), at.y(up)], axis=1)
                if markevery is not None:
                    places = _spread(places, markevery * math.hypot(at.right - at.left, at.bottom - at.top))
                return "".join(_marker(marker, one, other, markersize, filled) for one, other in places.tolist())

            self._add(LINE_LAYER, draw, clipped=clip_on)

    def axhline(self, y: float, *, color: str, linewidth: float, linestyle: str = "-") -> None:
        """Draw a horizontal line from edge to edge."""
        look = _look(stroke=color, width=linewidth, line=linestyle)
        self._add(LINE_LAYER, lambda at: _path(f"M {_number(at.left)} {_number(at.y(y))} H {_number(at.right)}", look))

    def vlines(
        self, x: Sequence[float], low: Sequence[float], high: Sequence[float], *, colors: str, linewidth: float
    ) -> None:
        """Draw vertical lines from one number to another each."""
        ends = np.stack([np.repeat(x, 2), np.stack([low, high], axis=1).ravel()], axis=1).reshape(-1, 2, 2)
        self.segments(ends, color=colors, linewidth=linewidth, layer=LINE_LAYER)

    def segments(self, ends: Numbers, *, color: str, linewidth: float, layer: float = AREA_LAYER) -> None:
        """Draw segments of shape (n, 2, 2), start and end, each x and y, as one path."""
        look = _look(stroke=color, width=linewidth)

        def draw(at: _Place) -> str:
            x, y = at.x(ends[:, :, 0]), at.y(ends[:, :, 1])
            parts = zip(*(_numbers(each) for each in (x[:, 0], y[:, 0], x[:, 1], y[:, 1])), strict=True)
            return _path(" ".join(f"M {a} {b} L {c} {d}" for a, b, c, d in parts), look)

        self._add(layer, draw)

    def rectangles(
        self, left: Numbers, right: Numbers, top: Numbers, bottom: Numbers, *, color: str, edgecolor: str = "none",
        linewidth: float = 0,
    ) -> None:  # fmt: skip
        """Draw many rectangles as one path, which keeps the page small."""
        look = _look(color, edgecolor, linewidth)

        def draw(at: _Place) -> str:
            ends = at.x(left), at.y(top), at.x(right), at.y(bottom)
            parts = zip(*map(_numbers, ends), strict=True)
            return _path(" ".join(f"M {a} {b} H {c} V {d} H {a} Z" for a, b, c, d in parts), look)

        self._add(AREA_LAYER, draw)

    def barh(
        self, y: float, width: float, *, height: float, left: float, color: str, edgecolor: str, linewidth: float
    ) -> None:
        """Draw a horizontal bar around ``y``."""
        ends = (np.array([each]) for each in (left, left + width, y - height / 2, y + height / 2))
        self.rectangles(*ends, color=color, edgecolor=edgecolor, linewidth=linewidth)

    def stairs(
        self,
        values: Numbers,
        edges: Numbers,
        *,
        baseline: float | Numbers,
        fill: bool = False,
        color: str = "none",
        facecolor: str | tuple[float, ...] = "",
        edgecolor: str = "",
        linewidth: float = 1,
        linestyle: str = "-",
    ) -> None:
        """Draw steps between consecutive edges, down to the baseline at both ends; or fill what is between."""
        look = _look(
            (facecolor or color) if fill else "none", edgecolor or color, 0 if fill and not edgecolor else linewidth,
            linestyle,
        )  # fmt: skip
        low = np.broadcast_to(np.asarray(baseline, float), values.shape)

        def draw(at: _Place) -> str:
            x = np.repeat(at.x(edges), 2)[1:-1]
            above, below = (np.repeat(at.y(each), 2) for each in (values, low))
            if fill:
                around = _polyline(np.append(x, x[::-1]), np.append(above, below[::-1]))
                return _path(around + " Z", look)
            ends = np.concatenate([below[:1], above, below[-1:]])
            return _path(_polyline(np.concatenate([x[:1], x, x[-1:]]), ends), look)

        self._add(AREA_LAYER, draw)

    def errorbar(
        self, x: float, y: float, *, yerr: float, ecolor: str, elinewidth: float, capsize: float, capthick: float,
        clip_on: bool, zorder: float, **_: Any,
    ) -> None:  # fmt: skip
        """Draw a vertical bar with caps, ``yerr`` up and down."""
        bar, cap = _look(stroke=ecolor, width=elinewidth), _look(stroke=ecolor, width=capthick)

        def draw(at: _Place) -> str:
            middle, high, low = at.x(x), at.y(y + yerr), at.y(y - yerr)
            caps = " ".join(
                f"M {_number(middle - capsize)} {_number(end)} H {_number(middle + capsize)}" for end in (high, low)
            )
            return _path(f"M {_number(middle)} {_number(high)} V {_number(low)}", bar) + _path(caps, cap)

        self._add(zorder, draw, clipped=clip_on)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        transform: str = "",
        va: str = "bottom",
        ha: str = "left",
        color: str = INK,
        fontweight: str = "normal",
        bbox: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Write a text at a place, over a rectangle in the colour of ``bbox`` if that is given."""

        def draw(at: _Place) -> str:
            across = {FIGURE_X: x * at.figure_pt, PANEL_X: at.left + x * (at.right - at.left)}
            left, up = across.get(transform, at.x(x)), at.y(y)
            beneath = ""
            if bbox is not None:
                width, height, pad = text_width_pt(text), _CAPITAL_EM * font_pt(), bbox["pad"]
                beneath = (
                    f'<rect x="{_number(left - pad)}" y="{_number(up - height / 2 - pad)}" '
                    f'width="{_number(width + 2 * pad)}" height="{_number(height + 2 * pad)}" '
                    f"{_look(bbox['facecolor'])}/>"
                )
            return beneath + _text(text, left, up, across=ha, up=va, colour=color, bold=fontweight == "bold")

        self._add(TEXT_LAYER, draw, clipped=False)

    def drawn(self, at: _Place, clip: str) -> str:
        """Return the panel as SVG. ``clip`` is the name of what cuts it at its edges."""
        parts = [self._grid(at)]
        within = False
        for mark in sorted(self._marks, key=lambda mark: mark.layer):
            if mark.clipped != within:
                parts.append(f'<g clip-path="url(#{clip})">' if mark.clipped else "</g>")
                within = mark.clipped
            parts.append(mark.draw(at))
        if within:
            parts.append("</g>")
        box = (at.left, at.top, at.right - at.left, at.bottom - at.top)
        x, y, width, height = map(_number, box)
        cut = f'<clipPath id="{clip}"><rect x="{x}" y="{y}" width="{width}" height="{height}"/></clipPath>'
        return cut + "".join(parts) + self._frame(at)

    def _grid(self, at: _Place) -> str:
        across, _ = self.horizontal.ticks(at.right - at.left, _ALONG_EM)
        up, _ = self.vertical.ticks(at.bottom - at.top, _UP_EM)
        lines = [
            f"M {_number(at.x(place))} {_number(at.top)} V {_number(at.bottom)}"
            for place in (across if self.horizontal.gridded else ())
        ] + [
            f"M {_number(at.left)} {_number(at.y(place))} H {_number(at.right)}"
            for place in (up if self.vertical.gridded else ())
        ]
        return _path(" ".join(lines), _look(stroke=GRID, width=_GRID_PT)) if lines else ""

    def _frame(self, at: _Place) -> str:
        """Return the lines of the axes with their ticks, and the texts around the panel."""
        across, names_across = self.horizontal.ticks(at.right - at.left, _ALONG_EM)
        up, names_up = self.vertical.ticks(at.bottom - at.top, _UP_EM)
        lines = []
        if self.spines["left"].visible:
            lines.append(f"M {_number(at.left)} {_number(at.top)} V {_number(at.bottom)}")
        if self.spines["bottom"].visible:
            lines.append(f"M {_number(at.left)} {_number(at.bottom)} H {_number(at.right)}")
        below, beside = at.bottom + self.horizontal.ticks_pt, at.left - self.vertical.ticks_pt
        if self.horizontal.ticks_pt:
            lines += [f"M {_number(at.x(place))} {_number(at.bottom)} V {_number(below)}" for place in across]
        if self.vertical.ticks_pt:
            lines += [f"M {_number(at.left)} {_number(at.y(place))} H {_number(beside)}" for place in up]
        texts = []
        if self.horizontal.named:
            texts += [
                _text(name, at.x(place), below + _TICK_GAP_PT, across="center", up="top")
                for place, name in zip(across, names_across, strict=True)
                if name
            ]
        if self.vertical.named:
            texts += [
                _text(name, beside - _TICK_GAP_PT, at.y(place), across="right", up="center")
                for place, name in zip(up, names_up, strict=True)
                if name
            ]
        if self.horizontal.label:
            under = at.bottom + self._below_pt(at.right - at.left, label=False) + _LABEL_GAP_PT
            texts.append(_text(self.horizontal.label, (at.left + at.right) / 2, under, across="center", up="top"))
        if self.vertical.label:
            left = at.left - self.beside_pt(at.bottom - at.top, label=False) - _LABEL_GAP_PT
            middle = (at.top + at.bottom) / 2
            texts.append(_text(self.vertical.label, left, middle, across="center", up="bottom", turned=True))
        if self.title:
            texts.append(_text(self.title, at.left, at.top - _TITLE_GAP_PT, across="left", up="bottom"))
        return (_path(" ".join(lines), _look(stroke=RULE, width=_RULE_PT)) if lines else "") + "".join(texts)

    def beside_pt(self, height_pt: float, *, label: bool = True) -> float:
        """Return the width of everything beside its left edge, with or without the axis' label."""
        _, names = self.vertical.ticks(height_pt, _UP_EM)
        width = self.vertical.ticks_pt
        if self.vertical.named and any(names):
            lines = (line for name in names for line in name.split("\n"))
            width += _TICK_GAP_PT + max(map(text_width_pt, lines))
        return width + (_LABEL_GAP_PT + _height_pt(self.vertical.label) if label and self.vertical.label else 0)

    def _below_pt(self, width_pt: float, *, label: bool = True) -> float:
        _, names = self.horizontal.ticks(width_pt, _ALONG_EM)
        height = self.horizontal.ticks_pt
        if self.horizontal.named and any(names):
            height += _TICK_GAP_PT + max(map(_height_pt, names))
        return height + (_LABEL_GAP_PT + _height_pt(self.horizontal.label) if label and self.horizontal.label else 0)

    def below_pt(self, width_pt: float) -> float:
        """Return the height of everything beneath its lower edge."""
        return self._below_pt(width_pt)

    def above_pt(self) -> float:
        """Return the height of everything above its upper edge; the upper tick's text reaches half a letter higher."""
        return _TITLE_GAP_PT + _height_pt(self.title) if self.title else _CAPITAL_EM * font_pt() / 2

    def beyond_pt(self, width_pt: float) -> float:
        """Return how far the texts of its ticks reach beyond its right edge."""
        if not self.horizontal.named:
            return 0.0
        low, high = self.horizontal.limits
        places, names = self.horizontal.ticks(width_pt, _ALONG_EM)
        halves = (max(map(text_width_pt, name.split("\n"))) / 2 for name in names)
        reach = (half - (high - place) / (high - low) * width_pt for place, half in zip(places, halves, strict=True))
        return max(0.0, *reach, 0.0)


def _height_pt(text: str) -> float:
    """Return the height of the lines of a text."""
    return (_LINE_EM * (line_count(text) - 1) + _CAPITAL_EM + _DESCENT_EM) * font_pt()


class SvgFigure:
    """A picture of a given width, with panels in rows and columns of one size."""

    def __init__(self, width_pt: float) -> None:
        """Begin without panels."""
        self._width_pt = width_pt
        self._grid: list[list[SvgAxes]] = []

    def get_figwidth(self) -> float:
        """Return the width in inches."""
        return self._width_pt / 72

    def subplots(
        self, rows: int = 1, columns: int = 1, *, squeeze: bool = True, sharex: bool = False, sharey: bool = False
    ) -> Any:
        """Return the panels, as matplotlib does: the only one, or an array of rows.

        Where they share an axis, its ticks have texts in the last row, or in the first column alone.
        """
        self._grid = [[SvgAxes() for _ in range(columns)] for _ in range(rows)]
        for number, row in enumerate(self._grid):
            for column, panel in enumerate(row):
                panel.horizontal.named = not sharex or number == rows - 1
                panel.vertical.named = not sharey or column == 0
        if squeeze and rows == columns == 1:
            return self._grid[0][0]
        array = np.empty((rows, columns), object)
        array[:] = self._grid
        return array

    def svg(self, height_pt: float, salt: str) -> Markup:
        """Return the picture as the contents of an SVG element. ``salt`` makes its inner references unique."""
        places = self._places(height_pt)
        drawn = (
            panel.drawn(
                _Place(*box, panel.horizontal.limits, panel.vertical.limits, self._width_pt), f"{salt}-{number}"
            )
            for number, (panel, box) in enumerate(places)
            if panel.visible
        )
        return Markup("").join(Markup(each) for each in drawn)  # noqa: S704 - every text is escaped where it is drawn

    def _places(self, height_pt: float) -> list[tuple[SvgAxes, tuple[float, float, float, float]]]:
        """Return each panel with its left, right, upper and lower edge.

        The texts around a panel depend on its size, and its size on them: they are measured twice.
        """
        rows, columns = len(self._grid), len(self._grid[0])
        width, height = self._width_pt / columns, height_pt / rows
        for _ in range(2):
            seen = [[panel for panel in row if panel.visible] for row in self._grid]
            by_column = [[row[column] for row in self._grid if row[column].visible] for column in range(columns)]
            left = [max((panel.beside_pt(height) for panel in own), default=0.0) for own in by_column]
            right = [max((panel.beyond_pt(width) for panel in own), default=0.0) for own in by_column]
            above = [max((panel.above_pt() for panel in own), default=0.0) for own in seen]
            below = [max((panel.below_pt(width) for panel in own), default=0.0) for own in seen]
            gaps_across = 2 * _EDGE_PT + (columns - 1) * _BETWEEN_PT
            gaps_up = 2 * _EDGE_PT + (rows - 1) * _BETWEEN_PT
            width = max(1.0, (self._width_pt - sum(left) - sum(right) - gaps_across) / columns)
            height = max(1.0, (height_pt - sum(above) - sum(below) - gaps_up) / rows)
        found = []
        down = _EDGE_PT
        for row, row_above, row_below in zip(self._grid, above, below, strict=True):
            down += row_above
            across = _EDGE_PT
            for panel, beside, beyond in zip(row, left, right, strict=True):
                across += beside
                found.append((panel, (across, across + width, down, down + height)))
                across += width + beyond + _BETWEEN_PT
            down += height + row_below + _BETWEEN_PT
        return found
