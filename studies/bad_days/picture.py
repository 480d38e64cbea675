"""Draw what bad days cost: the share of the bad time that is lost, against severity, a panel a day."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.bad_days.lost_time import BREAKS_AT, Loss
from studies.bad_days.page import DayResult
from wanbed.results.report.charts.colours import Style, variant_styles


def draw(results: Sequence[DayResult], path: Path) -> None:
    """Write the picture as PNG: lines for simulated losses with their intervals, crosses for measured ones."""
    styles = variant_styles(list(dict.fromkeys(name for result in results for name in result.variants)))
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(2, 2, squeeze=False).flat
    for axis, result in zip(axes, results, strict=False):
        for position, variant in enumerate(result.variants):
            aside = (position - (len(result.variants) - 1) / 2) * 0.07
            _line(axis, [loss for loss in result.simulated if loss.variant == variant], styles[variant], aside)
            _crosses(axis, [loss for loss in result.measured if loss.variant == variant], styles[variant], aside)
        axis.axhline(BREAKS_AT, color="#999999", linewidth=0.8, linestyle="--")
        axis.set_title(result.day.ladder.title)
        axis.set_xticks(range(len(result.day.ladder.steps)), result.day.ladder.steps)
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axis.set_ylabel("lost of the bad time")
        axis.grid(axis="y", alpha=0.4)
    figure.legend(
        [Axes.plot(axis, [], [], color=style.colour, marker=style.marker)[0] for style in styles.values()],
        list(styles), loc="outside lower center", ncols=len(styles), frameon=False,
        title="lines: simulated; crosses: measured in virtual time; dashed: counts as broken",
    )  # fmt: skip
    figure.savefig(path, dpi=110)


def _line(axis: Axes, losses: Sequence[Loss], style: Style, aside: float) -> None:
    if not losses:
        return
    at, shares = [loss.severity + aside for loss in losses], [loss.share for loss in losses]
    ends = [loss.interval or (loss.share, loss.share) for loss in losses]
    down = [share - low for share, (low, _) in zip(shares, ends, strict=True)]
    up = [high - share for share, (_, high) in zip(shares, ends, strict=True)]
    axis.errorbar(at, shares, yerr=[down, up], color=style.colour, marker=style.marker, markersize=6, capsize=3)


def _crosses(axis: Axes, losses: Sequence[Loss], style: Style, aside: float) -> None:
    at = [loss.severity + aside for loss in losses]
    axis.plot(at, [loss.share for loss in losses], "x", color=style.colour, markersize=11, markeredgewidth=2.5)
