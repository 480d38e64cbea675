"""Write the summary of a run as one file, for tools that do not use this package."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from wanbed.ground.files.atomic_write import written_whole
from wanbed.results.reading.run import Run
from wanbed.results.reading.summaries.summary import FIELDS
from wanbed.results.records.run_store import SUMMARY_FILE
from wanbed.results.records.schema import SUMMARY, swept_column, with_columns
from wanbed.results.records.table_files import write_tables


def write_summary(run: Run) -> Path:
    """Write ``run.summary`` to the run's folder, one row per trial, replacing an existing file. Return the file's path.

    ``results.load`` does not read this file: it computes the summary from the traces.
    """
    summary = run.summary
    paths = [str(path) for path in summary if path not in FIELDS]
    schema = with_columns(SUMMARY, [swept_column(path, _arrow_type(summary[path])) for path in paths], after=1)
    path = run.path / SUMMARY_FILE
    with written_whole(path) as partial:
        write_tables(partial, schema, [pa.Table.from_pandas(summary, schema, preserve_index=False)])
    return path


def _arrow_type(values: "pd.Series[Any]") -> pa.DataType:
    if isinstance(values.dtype, pd.CategoricalDtype):
        return pa.dictionary(pa.int32(), pa.string(), ordered=True)
    return pa.float64() if pd.api.types.is_float_dtype(values) else pa.int64()
