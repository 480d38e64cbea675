"""Write what bad days cost into ``docs/bad-days.md``: one table a day, which plan breaks first, and a picture."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.bad_days.day import Day
from studies.bad_days.lost_time import BREAKS_AT, Loss, breaking_step
from wanbed.ground.files import with_marked_text, write_whole
from wanbed.results.report.charts.colours import Style, variant_styles
from wanbed.results.text import list_text, markdown_text, seconds_text, table_line

BEGIN = "<!-- written by make bad-days -->\n"

END = "<!-- end of what make bad-days has written -->\n"


@dataclass(frozen=True)
class DayResult:
    """The cost of a day, simulated and measured in virtual time; () for an engine that did not run."""

    day: Day
    simulated: Sequence[Loss]
    measured: Sequence[Loss]

    @property
    def variants(self) -> list[str]:
        """The variants in the order of the experiment."""
        names = {loss.variant for loss in (*self.simulated, *self.measured)}
        return [variant["name"] for variant in self.day.document["variants"] if variant["name"] in names]


def write_page(page: Path, results: Sequence[DayResult], picture: str) -> None:
    """Replace what lies between the page's two marks. Raise ValueError if a mark is missing."""
    write_whole(page, with_marked_text(page.read_text(encoding="utf-8"), BEGIN, END, page_text(results, picture)))


def page_text(results: Sequence[DayResult], picture: str) -> str:
    """Return the tables of all days, after the picture and the table of what breaks first."""
    parts = [f"![Share of the bad time that each schedule lost]({picture})\n", _breaking_table(results)]
    parts += [f"### {result.day.ladder.title}\n\n{_day_table(result)}" for result in results]
    return "\n".join(parts)


def _breaking_table(results: Sequence[DayResult]) -> str:
    variants = list(dict.fromkeys(name for result in results for name in result.variants))
    lines = [table_line(["bad day", *map(markdown_text, variants)]), table_line(["---"] * (len(variants) + 1))]
    for result in results:
        cells = [_breaking_text(result, variant) for variant in variants]
        lines.append(table_line([markdown_text(result.day.ladder.title), *cells]))
    about = textwrap.fill(
        f'The first step of each day\'s ladder that cost at least {BREAKS_AT:.0%} of the bad time, simulated; "not" '
        'where no step did, and "-" for what the day does not have.',
        120,
    )
    return "\n".join([*lines, "", about, ""])


def _breaking_text(result: DayResult, variant: str) -> str:
    own = _of(result.simulated, variant)
    if not own:
        return "-"
    step = breaking_step(own)
    return "not" if step is None else markdown_text(result.day.ladder.steps[step])


def _day_table(result: DayResult) -> str:
    variants = result.variants
    lines = [table_line(["step", "", *map(markdown_text, variants)]), table_line(["---"] * (len(variants) + 2))]
    lines.append(table_line(["calm", "iteration", *(_iteration_text(result, name) for name in variants)]))
    for severity, step in enumerate(result.day.ladder.steps):
        for how, losses in (("simulated", result.simulated), ("measured", result.measured)):
            found = [next((each for each in _of(losses, name) if each.severity == severity), None) for name in variants]
            if any(found):
                lines.append(table_line([markdown_text(step), how, *map(_loss_text, found)]))
    return "\n".join([*lines, ""])


def _of(losses: Sequence[Loss], variant: str) -> list[Loss]:
    return [loss for loss in losses if loss.variant == variant]


def _iteration_text(result: DayResult, variant: str) -> str:
    own = {how: next(iter(_of(losses, variant)), None) for how, losses in _by_engine(result).items()}
    return list_text([f"{seconds_text(loss.calm_s)} {how}" for how, loss in own.items() if loss is not None])


def _by_engine(result: DayResult) -> Mapping[str, Sequence[Loss]]:
    return {"simulated": result.simulated, "measured": result.measured}


def _loss_text(loss: Loss | None) -> str:
    if loss is None:
        return "-"
    interval = loss.interval
    return _percent(loss.share) + ("" if interval is None else f" ({_percent(interval[0])} to {_percent(interval[1])})")


def _percent(share: float) -> str:
    # Without adding 0, what rounds to nothing from below would read -0%.
    return f"{round(share, 2) + 0:.0%}"


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
