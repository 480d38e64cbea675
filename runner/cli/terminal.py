"""Print tables of results to a terminal, a pipe or a file."""

from collections.abc import Sequence
from itertools import pairwise

from rich.box import HEAVY_HEAD, Box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from wanbed.results.report.table import Table, TableCell


def terminal(*, stderr: bool = False, width: int = 120) -> Console:
    """Return where tables go: to a terminal in its width, to files and pipes in this one."""
    console = Console(stderr=stderr, highlight=False, markup=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, markup=False, width=width)


def print_table(
    table: Table | None, to: Console, *, box: Box = HEAVY_HEAD, narrow: bool = False, sections: Sequence[object] = ()
) -> None:
    """Print a table, its title above and its reading below; nothing if there is none.

    A ``narrow`` one saves the room around it. ``sections`` has a value for each row; a line parts those that differ.
    Texts are printed literally: markup in a name is none.
    """
    if table is None:
        return
    shown = RichTable(
        title=Text(table.title, style="table.title") if table.title else None,
        title_justify="left",
        caption=Text("\n".join(table.reading)) if table.reading else None,
        caption_justify="left",
        box=box,
        pad_edge=not narrow,
        padding=(0, 1, 0, 0) if narrow else (0, 1),
    )
    for heading, form in zip(table.columns, table.forms, strict=True):
        shown.add_column(
            heading,
            justify="right" if form == "figure" else "left",
            no_wrap=form in {"figure", "name"},
            overflow="fold" if form == "path" else "ellipsis",
        )
    ends = {number for number, (one, following) in enumerate(pairwise(sections)) if one != following}
    for number, row in enumerate(table.rows):
        shown.add_row(*map(_text, row), end_section=number in ends)
    to.print(shown)


def _text(cell: TableCell) -> Text:
    return Text("\n".join((cell.text, *cell.beneath)), style="bold" if cell.bad else "")
