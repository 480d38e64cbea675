"""A table of the report: its columns are declared once, and give the page and Markdown the same texts, JSON records."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wanbed.results.text.markdown_text import markdown_text, table_line
from wanbed.results.text.number_text import UNKNOWN

Row = TypeVar("Row")


_FIGURE = re.compile(r"[<>+\-\N{MINUS SIGN}]?\d[\d.,]*x?([\s%].*)?")
"""A number, with a unit or none, and no name that begins with one, like 1f1b."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its heading, and the text of each row. One in which no row has a text is left out of its table."""

    heading: str
    text: Callable[[Row], str]


@dataclass(frozen=True)
class Table:
    """A table as it is shown, under ``title``. ``reading`` explains the figures.

    ``name`` is its class on the page, and the entry of ``records``, its rows in plain JSON types. ``figures`` says of
    each column whether it is of numbers, which stand to the right.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    reading: str
    figures: Sequence[bool] = ()
    records: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        rows: Iterable[Row],
        columns: Sequence[Column[Row]],
        reading: str,
        *,
        record: Callable[[Row], Mapping[str, Any]] | None = None,
    ) -> "Table | None":
        """Return the table of these rows; None if there are none. ``record`` gives a row in plain JSON types."""
        listed = list(rows)
        texts = {column.heading: [column.text(row) for row in listed] for column in columns}
        shown = {heading: own for heading, own in texts.items() if any(own)}
        records = [] if record is None else [record(row) for row in listed]
        lines = list(zip(*shown.values(), strict=True))
        figures = [all(map(_is_figure, own)) for own in shown.values()]
        return cls(name, title, list(shown), lines, reading, figures, records) if shown else None

    def markdown(self, run: str = "") -> str:
        """Return the table in Markdown, after an empty line. ``run`` is its name, where there are several."""
        title = markdown_text(f"{self.title}, {run}" if run else self.title)
        rule = ["---:" if figure else "---" for figure in self.figures]
        lines = [table_line(self.columns), table_line(rule)]
        lines += [table_line([markdown_text(text) for text in row]) for row in self.rows]
        return "\n".join(["", f"**{title}**", "", *lines, "", self.reading, ""])


def _is_figure(text: str) -> bool:
    return text in {"", UNKNOWN, "unknown"} or _FIGURE.fullmatch(text) is not None
