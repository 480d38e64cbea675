"""A table of results in a terminal has the texts that it has on a page."""

from io import StringIO

from rich.console import Console

from wanbed.results.report.table import Column, Table, TableCell
from wanbed.runner.cli.terminal import print_table

COLUMNS = (
    Column[tuple[str, str]]("name", lambda row: row[0]),
    Column[tuple[str, str]]("time", lambda row: TableCell(row[1], ("of 9 s",))),
)


def printed(*rows: tuple[str, str], width: int = 40, sections: tuple[int, ...] = ()) -> list[str]:
    text = StringIO()
    table = Table.of("times", "Times", rows, COLUMNS, ["One.", "Two."])
    print_table(table, Console(file=text, width=width, highlight=False), sections=sections)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_figures_stand_to_the_right_with_what_is_beneath_them() -> None:
    assert printed(("atlas", "1 s"), ("gpipe", "10 s")) == [
        "Times",
        "┏━━━━━━━┳━━━━━━━━┓",
        "┃ name  ┃   time ┃",
        "┡━━━━━━━╇━━━━━━━━┩",
        "│ atlas │    1 s │",
        "│       │ of 9 s │",
        "│ gpipe │   10 s │",
        "│       │ of 9 s │",
        "└───────┴────────┘",
        "One.",
        "Two.",
    ]


def test_without_rows_nothing_is_printed() -> None:
    assert printed() == []


def test_markup_in_a_name_is_printed_as_it_is() -> None:
    assert any("[bold]atlas[/]" in line for line in printed(("[bold]atlas[/]", "1 s")))


def test_a_line_parts_sections() -> None:
    lines = printed(("a", "1 s"), ("b", "2 s"), ("c", "3 s"), sections=(0, 0, 1))
    assert [line[0] for line in lines[4:-2]] == [*"││││", "├", "│", "│", "└"]


def test_names_are_broken_before_figures_are() -> None:
    lines = printed(("a name of many words", "100 s"), width=20)
    assert any("100 s" in line for line in lines)
    assert not any("a name of many" in line for line in lines)
