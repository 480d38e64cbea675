"""Choose colours that readers with any colour vision can distinguish: the palette of Okabe and Ito.

Source: Okabe and Ito, "Color Universal Design", 2008; navy is this project's addition. A variant keeps its colour and
marker in the whole report. A run keeps its line style for every variant. The activities of a GPU have their own
colours, which also differ in lightness, so that they can be distinguished in a grey print. ``backward`` and
``backward_input`` share a colour: a schedule has only one of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

VERMILLION = "#D55E00"

BLUISH_GREEN = "#009E73"

REDDISH_PURPLE = "#CC79A7"

ORANGE = "#E69F00"

BLACK = "#000000"

BLUE = "#0072B2"

SKY_BLUE = "#56B4E9"

YELLOW = "#F0E442"

NAVY = "#00456E"

GREY = "#555555"

LIGHT_ORANGE = "#F7DDA6"

LIGHT_SKY_BLUE = "#C6E4F6"

LIGHT_VERMILLION = "#EFBD99"

LIGHT_PURPLE = "#EED5E2"
"""Tints for areas that also have a pattern. No variant has them, so that a colour has one meaning on a page."""

_VARIANT_COLOURS = (VERMILLION, BLUISH_GREEN, REDDISH_PURPLE, ORANGE, BLACK, BLUE, SKY_BLUE)

_VARIANT_MARKERS = ("o", "s", "^", "D", "v")

_RUN_LINES = ("-", "--", ":", "-.")

COMPUTE_COLOURS = {
    "forward": SKY_BLUE,
    "recompute": YELLOW,
    "backward": BLUE,
    "backward_input": BLUE,
    "backward_weight": NAVY,
    "optimizer": BLACK,
}

PREFILL_COLOUR = "#86CDB8"

TRANSFER_COLOURS = {"all_reduce": "#B497C4", "norm": "#D8C7E2", "send": "#A6A6A6", "receive": "#D0D0D0"}

COLLECTIVE_COLOURS = {
    "all_gather": "#4A7C3A",
    "reduce_scatter": "#C8D96F",
    "broadcast": "#F2B8A0",
    "all_to_all": "#8C564B",
    "barrier": "#5B2C6F",
    "collective": "#C9A227",
}
"""Collectives of a user's program besides the all-reduce; those of one kind of training differ in lightness."""


@dataclass(frozen=True)
class Style:
    """The style of one variant, run or activity in all charts.

    ``marker``, ``line`` and ``hatch`` are matplotlib's codes. An area has neither marker nor line: both are "". A
    marker is ``filled`` or an outline. ``hatch`` is an area's pattern, drawn in ``hatch_colour``.
    """

    colour: str
    marker: str = ""
    line: str = ""
    filled: bool = True
    hatch: str = ""
    hatch_colour: str = "#FFFFFF"


def lightened(colour: str) -> str:
    """Return the colour halfway to white, for an area beneath lines of the given colour (``#RRGGBB``)."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{(part + 255) // 2:02X}" for part in parts)


def variant_styles(variants: Sequence[str]) -> dict[str, Style]:
    """Return a style for each variant, by its position. Up to 35 differ: variants of one colour differ in marker."""
    return {
        variant: Style(
            _VARIANT_COLOURS[position % len(_VARIANT_COLOURS)], _VARIANT_MARKERS[position % len(_VARIANT_MARKERS)], "-"
        )
        for position, variant in enumerate(variants)
    }


def run_styles(labels: Sequence[str]) -> dict[str, Style]:
    """Return a grey line for each run, by its position.

    The first run's line is solid with filled markers; filled and open markers alternate from there.
    """
    return {
        label: Style(GREY, "", _RUN_LINES[position % len(_RUN_LINES)], filled=position % 2 == 0)
        for position, label in enumerate(labels)
    }


@dataclass(frozen=True)
class Styles:
    """The styles that distinguish variants and runs in every chart of a report."""

    variants: Mapping[str, Style]
    runs: Mapping[str, Style]

    @classmethod
    def of(cls, runs: Mapping[str, Sequence[str]]) -> "Styles":
        """Return styles for runs, each a label with its variants' names in order."""
        variants = dict.fromkeys(variant for names in runs.values() for variant in names)
        return cls(variant_styles(list(variants)), run_styles(list(runs)))

    def of_series(self, variant: str, run: str) -> Style:
        """Return the variant's colour and marker with the run's line and filling."""
        run_style = self.runs[run]
        return replace(self.variants[variant], line=run_style.line, filled=run_style.filled)
