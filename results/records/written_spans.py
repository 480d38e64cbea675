"""Hold the spans that this process writes, so that its report on them need not read them back."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa


class WrittenSpans:
    """The spans of trials by their folders, as tables of the ``coded_schema``: what reading would give."""

    def __init__(self) -> None:
        self._tables: dict[Path, list[pa.Table]] = {}

    def kept(self, folder: Path, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the spans of a trial, and keep them."""
        own = self._tables[folder] = []
        for table in tables:
            own.append(table)
            yield table

    def taken(self, folder: Path) -> pa.Table | None:
        """Return the spans of a trial, which are no longer kept then; None of one that was written elsewhere."""
        own = self._tables.pop(folder, None)
        return pa.concat_tables(own) if own else None
