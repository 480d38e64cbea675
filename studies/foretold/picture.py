"""Draw every counted figure, simulated over published, with the band in which a row is met."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.foretold.outcome import BAND, Outcome, counted
from wanbed.results.report.charts.colours import variant_styles

_MOST = 0.4
"""Errors beyond this are drawn at the edge."""


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the picture as PNG: foretold rows on the left, explained ones on the right."""
    shown = [*counted(outcomes, "foretold"), *counted(outcomes, "explained")]
    styles = variant_styles(list(dict.fromkeys(outcome.row.group.title for outcome in shown)))
    figure = Figure(figsize=(11, 6), layout="constrained")
    for axis, kind in zip(figure.subplots(1, 2, sharey=True), ("foretold", "explained"), strict=True):
        own = counted(shown, kind)
        axis.axhspan(1 - BAND, 1 + BAND, color="#dddddd")
        axis.axhline(1, color="#888888", linewidth=0.8)
        for group, style in styles.items():
            _points(axis, [each for each in own if each.row.group.title == group], style.colour, style.marker)
        axis.set_xscale("log")
        axis.set_ylim(1 - _MOST - 0.02, 1 + _MOST + 0.02)
        axis.set_title(f"{kind}: {len(own)} rows, {sum(each.met for each in own)} in the band")
        axis.set_xlabel("published (seconds, samples a second, or a share)")
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("simulated over published; beyond 40 % at the edge")
    figure.legend(
        [Axes.plot(figure.axes[0], [], [], style.marker, color=style.colour)[0] for style in styles.values()],
        list(styles), loc="outside lower center", ncols=2, frameon=False,
    )  # fmt: skip
    figure.savefig(path, dpi=110)


def _points(axis: Axes, outcomes: Sequence[Outcome], colour: str, marker: str) -> None:
    published = [outcome.row.published for outcome in outcomes]
    ratios = [1 + max(-_MOST, min(_MOST, outcome.error)) for outcome in outcomes]
    axis.plot(published, ratios, marker, color=colour, markersize=5, alpha=0.8)
