"""Show a comparison of two runs: what forbids it or differs, a row for each pair, and the verdict."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wanbed.ground.shown_text import one_line
from wanbed.results.comparison.comparison import Comparison
from wanbed.results.comparison.differences import Difference
from wanbed.results.comparison.markdown import (
    BOUND_HEADINGS,
    bound_texts,
    difference_row,
    has_bounds,
    pair_row,
    verdict_line,
)
from wanbed.results.text.number_text import percent_text

_WIDTH = 140
"""The width of tables that go to a file or a pipe."""


def compare_console(*, stderr: bool) -> Console:
    """Return where tables go: to a terminal in its width, and to files and pipes in one of their own."""
    console = Console(stderr=stderr, highlight=False, markup=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, markup=False, width=_WIDTH)


def _text(text: str) -> Text:
    """Return text to print literally: no markup and no control characters, because names come from users."""
    return Text(one_line(text))


def show(comparison: Comparison, console: Console) -> None:
    """Print what a comparison found, its verdict last."""
    checked = comparison.check
    if checked.refused:
        console.print(
            differences_table("Differences that forbid a comparison; --allow FIELD accepts one", checked.refused)
        )
        for remedy in dict.fromkeys(f"{each.field}: {each.remedy}" for each in checked.refused if each.remedy):
            console.print(_text(remedy), soft_wrap=True)
    if checked.allowed:
        console.print(differences_table("Differences that were allowed", checked.allowed))
    if checked.under_test:
        console.print(differences_table("Under test", checked.under_test))
    if comparison.judgements:
        console.print(_pairs(comparison))
    for judgement in comparison.judgements:
        if judgement.verdict in {"unclear", "no_data"}:
            pair = judgement.pair
            where = ", ".join(filter(None, (pair.point_text, pair.variant_text)))
            console.print(
                _text(f"{judgement.verdict.upper().replace('_', ' ')} {where}: {judgement.reading}"), soft_wrap=True
            )
    for each in comparison.notes:
        console.print(_text(each), soft_wrap=True)
    for each in checked.caveats:
        console.print(_text(f"warning: {each}"), soft_wrap=True)
    console.print(_text(verdict_line(comparison)), soft_wrap=True)


def _pairs(comparison: Comparison) -> Table:
    floors = any(judgement.noise_floor is not None for judgement in comparison.judgements)
    table = Table(title=comparison.metric.name if comparison.metric.of_losses else None, title_justify="left")
    for heading in ("sweep point", "variant"):
        table.add_column(heading)
    for heading in ("A", "B", "B / A", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    if floors:
        table.add_column("noise\nfloor", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for heading in BOUND_HEADINGS if has_bounds(comparison) else ():
        table.add_column(heading)
    for judgement in comparison.judgements:
        *figures, verdict, _ = pair_row(judgement, comparison.metric)
        if floors:
            figures.append(percent_text(judgement.noise_floor))
        bounds = bound_texts(judgement) if has_bounds(comparison) else ()
        table.add_row(*map(_text, (*figures, verdict, *bounds)))
    return table


def differences_table(title: str, found: tuple[Difference, ...] | list[Difference]) -> Table:
    """Return a table of fields that differ between two runs."""
    table = Table(title=title, title_justify="left")
    for heading in ("field", "A", "B", "where"):
        table.add_column(heading, overflow="fold")
    for each in found:
        table.add_row(*map(_text, difference_row(each)))
    return table
