"""Define one table of a finished trial."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, eq=False)
class TrialTable:
    """One Parquet file of a trial; ``title`` is its heading on the results page.

    A field of ``row`` that may be None is a column that may be null. A table that is not ``always`` written has a file
    only if it has rows. ``since_version`` is the first schema version that always has this table.
    ``fullest`` is the schema of files with optional columns too, None where no column is optional.
    """

    file: str
    title: str
    columns: pa.Schema
    row: type[tuple[Any, ...]]
    always: bool = False
    since_version: int = 1
    fullest: pa.Schema | None = None

    @property
    def frame(self) -> str:
        """The name of its data frame in a run that is read."""
        return self.file.removesuffix(".parquet")
