"""Hold the spans that this process writes, so that its report on them need not read them back."""

from pathlib import Path

import pyarrow as pa


class WrittenSpans:
    """The spans of trials by their folders, each as one table of the ``coded_schema``: what reading would give.

    A data frame takes the memory of a table's columns of numbers where each is in one piece.
    """

    def __init__(self) -> None:
        self._tables: dict[Path, pa.Table] = {}

    def keep(self, folder: Path, table: pa.Table) -> None:
        """Keep the spans of the trial in that folder."""
        self._tables[folder] = table

    def taken(self, folder: Path) -> pa.Table | None:
        """Return the spans of a trial, which are no longer kept then; None of one that was written elsewhere."""
        return self._tables.pop(folder, None)
