"""Write the summary of a run as one file, for tools that do not use this package."""

import json
from pathlib import Path

from ground.atomic_write import written_whole
from results.reading.run import Run
from results.reading.summary import summary_rows
from results.records.run_store import SUMMARY_FILE
from results.records.schema import SUMMARY, write_table


def write_summary(run: Run) -> Path:
    """Write ``run.summary`` to the run's folder, one row per trial, replacing an existing file. Return the file's path.

    ``results.load`` does not read this file: it computes the summary from the traces.
    """
    rows = [
        {**row, "sweep_point": json.dumps(row["sweep_point"], ensure_ascii=False)} for row in summary_rows(run.summary)
    ]
    path = run.path / SUMMARY_FILE
    with written_whole(path) as partial:
        write_table(partial, SUMMARY, [[row[name] for name in SUMMARY.names] for row in rows])
    return path
