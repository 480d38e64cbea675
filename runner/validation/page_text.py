"""Write Markdown that is also readable as plain text."""

import re
from collections.abc import Sequence


def paragraph(text: str) -> str:
    """Return a paragraph, ended by a line break."""
    return f"{text}\n"


def plain(text: str) -> str:
    """Return text of a user with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def seconds_text(value_s: float) -> str:
    """Return an iteration time as text."""
    return f"{value_s:.3f} s"


def error_text(error: float) -> str:
    """Return an error as text, with its sign."""
    return f"{error:+.1%}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a table whose columns are padded to equal width. The columns in ``right`` are aligned to the right."""
    widths = [max(3, *(len(row[column]) for row in [headings, *rows])) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |\n"

    rule = [f"{'-' * (width - 1)}:" if column in right else "-" * width for column, width in enumerate(widths)]
    return "".join([line(headings), line(rule), *(line(row) for row in rows)])
