"""A table of the report: its columns are declared once, and give the page and Markdown the same texts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from wanbed.results.text.markdown_text import markdown_text, table_line

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its heading, and the text of each row. One in which no row has a text is left out of its table."""

    heading: str
    text: Callable[[Row], str]


@dataclass(frozen=True)
class Table:
    """A table as it is shown, under ``title``. ``name`` is its class on the page, ``reading`` explains the figures."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    reading: str

    @classmethod
    def of(
        cls, name: str, title: str, rows: Iterable[Row], columns: Sequence[Column[Row]], reading: str
    ) -> "Table | None":
        """Return the table of these rows; None if there are none."""
        listed = list(rows)
        texts = {column.heading: [column.text(row) for row in listed] for column in columns}
        shown = {heading: own for heading, own in texts.items() if any(own)}
        return cls(name, title, list(shown), list(zip(*shown.values(), strict=True)), reading) if shown else None

    @property
    def markdown(self) -> str:
        """The table in Markdown, after an empty line."""
        lines = [table_line(self.columns), table_line(["---"] * len(self.columns))]
        lines += [table_line([markdown_text(text) for text in row]) for row in self.rows]
        return "\n".join(["", *lines, "", self.reading, ""])
