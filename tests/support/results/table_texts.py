"""Read a table of the report as texts."""

from wanbed.results.report.table import Table


def texts_of(table: Table) -> list[tuple[str, ...]]:
    """Return the texts of each row."""
    return [tuple(cell.text for cell in row) for row in table.rows]


def by_heading(table: Table) -> list[dict[str, str]]:
    """Return each row's texts by heading, with what stands beneath a text behind a stroke."""
    return [
        {
            heading: " / ".join((cell.text, *cell.beneath)).replace("\N{NO-BREAK SPACE}", " ")
            for heading, cell in zip(table.columns, row, strict=True)
        }
        for row in table.rows
    ]
