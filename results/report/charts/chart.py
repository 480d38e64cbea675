"""Define a chart of the report: its drawings for a page or for paper, its legend, and the text that explains it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from markupsafe import Markup
from matplotlib.figure import Figure

from wanbed.results.report.charts.canvas import NARROW_PX, WIDE_PX, PicturePlace, svg
from wanbed.results.report.charts.colours import Style, Styles

Painter = Callable[[Figure, PicturePlace], float]
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
    references do not collide. Text stays text in the SVG, and is never interpreted as mathematics.
    """

    description: str
    salt: str
    paint: Painter = field(compare=False)
    heading: LegendEntry | None = None
    name: str = ""

    @cached_property
    def wide(self) -> Markup:
        """The picture as SVG for a wide page."""
        return svg(self.paint, self.description, f"{self.salt}-wide", WIDE_PX)

    @cached_property
    def narrow(self) -> Markup:
        """The picture as SVG for a narrow page."""
        return svg(self.paint, self.description, f"{self.salt}-narrow", NARROW_PX)


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
