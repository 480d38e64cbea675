"""Show a comparison of two runs: what forbids it or differs, a row for each pair, and the verdict."""

from collections.abc import Sequence
from operator import itemgetter

from rich.console import Console
from rich.text import Text

from wanbed.ground.errors import one_line
from wanbed.results.comparison.comparison import Comparison
from wanbed.results.comparison.differences import Difference
from wanbed.results.comparison.markdown import (
    difference_row,
    further_headings,
    further_texts,
    pair_row,
    verdict_line,
)
from wanbed.results.report.table import Column, Table
from wanbed.results.text import percent_text
from wanbed.runner.cli.terminal import print_table

WIDTH = 140
"""The width of tables that go to a file or a pipe."""

_Texts = tuple[str, ...]


def _literal(*texts: str) -> _Texts:
    """Return texts without control characters, because names come from users."""
    return tuple(map(one_line, texts))


def _text(text: str) -> Text:
    """Return text to print literally: no markup and no control characters, because names come from users."""
    return Text(one_line(text))


def show(comparison: Comparison, console: Console) -> None:
    """Print what a comparison found, its verdict last."""
    checked = comparison.check
    forbidding = "Differences that forbid a comparison; --allow FIELD accepts one"
    print_table(differences_table(forbidding, checked.refused), console)
    for remedy in dict.fromkeys(f"{each.field}: {each.remedy}" for each in checked.refused if each.remedy):
        console.print(_text(remedy), soft_wrap=True)
    print_table(differences_table("Differences that were allowed", checked.allowed), console)
    print_table(differences_table("Under test", checked.under_test), console)
    print_table(_pairs(comparison), console)
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


def _pairs(comparison: Comparison) -> Table | None:
    metric, judgements = comparison.metric, comparison.judgements
    floors = any(judgement.noise_floor is not None for judgement in judgements)
    rows = [
        _literal(
            *pair_row(each, metric), percent_text(each.noise_floor) if floors else "", *further_texts(comparison, each)
        )
        for each in judgements
    ]
    columns: list[Column[_Texts]] = [
        Column("sweep point", itemgetter(0), form="text"),
        Column("variant", itemgetter(1), form="text"),
        *(
            Column[_Texts](heading, itemgetter(place), form="figure")
            for heading, place in {"A": 2, "B": 3, "B / A": 4, "95 % interval": 5, "noise\nfloor": 8}.items()
        ),
        Column("verdict", itemgetter(6), form="name"),
        *(
            Column[_Texts](heading, itemgetter(place), form="text")
            for place, heading in enumerate(further_headings(comparison), 9)
        ),
    ]
    return Table.of("pairs", metric.name if metric.of_losses else "", rows, columns, "")


def differences_table(title: str, found: Sequence[Difference]) -> Table | None:
    """Return a table of fields that differ between two runs; None if there is none."""
    columns = [
        Column[_Texts](heading, itemgetter(place), form="path")
        for place, heading in enumerate(("field", "A", "B", "where"))
    ]
    return Table.of("differences", title, (_literal(*difference_row(each)) for each in found), columns, "")
