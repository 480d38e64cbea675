"""Write the summary of a run as one file, for tools that know nothing of this package."""

import json
from pathlib import Path

from ground.atomic_write import written_whole
from results.reading.run import Run
from results.reading.summary import summary_rows
from results.records.run_store import SUMMARY_FILE
from results.records.schema import SUMMARY, write_table


def write_summary(run: Run) -> Path:
    """Write ``run.summary`` into the run's folder, one row a trial, in place of what was there; return the file.

    ``results.load`` does not read it: its contents follow from the traces, and the program that reads the traces
    computes them.
    """
    rows = [
        {**row, "sweep_point": json.dumps(row["sweep_point"], ensure_ascii=False)} for row in summary_rows(run.summary)
    ]
    path = run.path / SUMMARY_FILE
    with written_whole(path) as partial:
        write_table(partial, SUMMARY, [[row[name] for name in SUMMARY.names] for row in rows])
    return path
