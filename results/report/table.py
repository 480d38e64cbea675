"""A table of results: its columns are declared once, and give page, Markdown and terminal their texts, JSON records."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from wanbed.results.text import NO_SWEEP, UNKNOWN, markdown_text, table_line

Row = TypeVar("Row")

Form = Literal["figure", "text", "name", "path"]
"""Figures stand to the right. A terminal breaks neither them nor names, and a path at any character."""

SWEEP_POINT = "sweep point"
"""The heading of the column by which a page puts rows together, where it is the first."""

_FIGURE = re.compile(r"[<>+\-\N{MINUS SIGN}]?\d[\d.,]*x?([\s%].*)?")
"""A number, with a unit or none, and no name that begins with one, like 1f1b."""


@dataclass(frozen=True)
class TableCell:
    """A text in a row, and lines that stand beneath it on the page and in a terminal, and behind it in Markdown.

    ``value`` is the exact value of a figure, for scripts that read the page. ``series`` are the variant and the run
    whose mark in the charts stands before the text. What is ``bad`` stands out.
    """

    text: str
    beneath: tuple[str, ...] = ()
    value: float | None = None
    series: tuple[str, str] | None = None
    bad: bool = False

    @property
    def markdown(self) -> str:
        """The cell in Markdown."""
        text = f"**{markdown_text(self.text)}**" if self.bad else markdown_text(self.text)
        return text + (f" ({markdown_text(', '.join(self.beneath))})" if self.beneath else "")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its heading, and the cell of each row. One in which no row has a text is left out of its table.

    ``beneath`` says what stands beneath the cells' texts. Without a ``form`` it has figures if all texts are numbers.
    """

    heading: str
    cell: Callable[[Row], str | TableCell]
    beneath: str = ""
    form: Form | None = None

    def cells(self, rows: Iterable[Row]) -> list[TableCell]:
        """Return the cell of each row."""
        return [found if isinstance(found, TableCell) else TableCell(found) for found in map(self.cell, rows)]


@dataclass(frozen=True)
class Table:
    """A table as it is shown, under ``title``. ``reading`` explains the figures, one paragraph after the other.

    ``name`` is its class on the page, and the entry of ``records``, its rows in plain JSON types. ``note`` says how the
    figures are defined.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    reading: Sequence[str]
    forms: Sequence[Form]
    records: Sequence[Mapping[str, Any]] = ()
    beneath: Sequence[str] = ()
    note: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        rows: Iterable[Row],
        columns: Sequence[Column[Row]],
        reading: str | Sequence[str],
        *,
        record: Callable[[Row], Mapping[str, Any]] | None = None,
        note: str = "",
    ) -> "Table | None":
        """Return the table of these rows; None if there are none. ``record`` gives a row in plain JSON types."""
        listed = list(rows)
        cells = [(column, column.cells(listed)) for column in columns]
        shown = [(column, own) for column, own in cells if any(cell.text for cell in own)]
        if not shown:
            return None
        return cls(
            name,
            title,
            [column.heading for column, _ in shown],
            list(zip(*(own for _, own in shown), strict=True)),
            list(filter(None, [reading] if isinstance(reading, str) else reading)),
            [
                column.form or ("figure" if all(_is_figure(cell.text) for cell in own) else "text")
                for column, own in shown
            ],
            [] if record is None else [record(row) for row in listed],
            [column.beneath for column, _ in shown],
            note,
        )

    @property
    def figures(self) -> list[bool]:
        """Tell whether each column has figures."""
        return [form == "figure" for form in self.forms]

    @property
    def marked(self) -> bool:
        """Tell whether its rows are series of the charts."""
        return any(cell.series for row in self.rows for cell in row)

    @property
    def groups(self) -> list[tuple[str, list[Sequence[TableCell]]]]:
        """The rows, put together by their sweep point, and each without it; all together if there is none."""
        if self.columns[0] != SWEEP_POINT:
            return [("", list(self.rows))]
        found: dict[str, list[Sequence[TableCell]]] = {}
        for row in self.rows:
            found.setdefault(row[0].text, []).append(row[1:])
        return [((where or NO_SWEEP) if len(found) > 1 else where, own) for where, own in found.items()]

    def markdown(self, run: str = "") -> str:
        """Return the table in Markdown, after an empty line. ``run`` is its name, where there are several."""
        title = markdown_text(f"{self.title}, {run}" if run else self.title)
        rule = ["---:" if figure else "---" for figure in self.figures]
        headings = [
            f"{name} ({beneath})" if beneath else name for name, beneath in zip(self.columns, self.beneath, strict=True)
        ]
        lines = [table_line(headings), table_line(rule)]
        lines += [table_line([cell.markdown for cell in row]) for row in self.rows]
        explained = [line for text in (*self.reading, self.note) if text for line in ("", text)]
        return "\n".join(["", f"**{title}**", "", *lines, *explained, ""])


class SeriesRow(Protocol):
    """A row of a series of the charts: a variant of a run, in a sweep point."""

    @property
    def where(self) -> str:
        """The sweep point as text, empty if nothing was swept."""

    @property
    def variant(self) -> str:
        """The name of the variant."""

    @property
    def run(self) -> str:
        """The label of the run."""


def series_columns(rows: Sequence[SeriesRow]) -> list[Column[Any]]:
    """Return the columns that name series: sweep point, variant with its mark, and the run if there are several."""
    several_runs = len({row.run for row in rows}) > 1
    return [
        Column(SWEEP_POINT, lambda row: row.where),
        Column("variant", lambda row: TableCell(row.variant, series=(row.variant, row.run))),
        *([Column[Any]("run", lambda row: row.run)] if several_runs else []),
    ]


class TrialRow(Protocol):
    """A row of one trial: where it ran."""

    @property
    def where(self) -> str:
        """The sweep point as text, empty if nothing was swept."""

    @property
    def variant(self) -> str:
        """The name of the variant."""

    @property
    def repeat(self) -> int:
        """The number of the repeat."""


def place_columns(of: Callable[[Any], Any] = lambda row: row) -> list[Column[Any]]:
    """Return the columns that say where a row was measured: sweep point and variant. ``of`` gives what has them."""
    return [Column(SWEEP_POINT, lambda row: of(row).where), Column("variant", lambda row: of(row).variant)]


def trial_columns(of: Callable[[Any], Any] = lambda row: row) -> list[Column[Any]]:
    """Return the columns that say which trial a row is of: where it was measured, and its repeat."""
    return [*place_columns(of), Column("repeat", lambda row: str(of(row).repeat))]


def trial_record(trial: TrialRow) -> dict[str, Any]:
    """Return the entries that say which trial a record is of."""
    return {"where": trial.where, "variant": trial.variant, "repeat": trial.repeat}


def _is_figure(text: str) -> bool:
    return text in {"", UNKNOWN, "unknown"} or _FIGURE.fullmatch(text) is not None
