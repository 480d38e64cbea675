"""Read and report results: the trace schema, the run store, metrics, and reports."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wanbed.results.reading.run import Run


def load(path: "str | Path") -> "Run":
    """Read a run's folder: its manifest, and its traces and summary as pandas data frames.

    A run that was killed can be read too; it contains its finished trials. Raise RunError if the folder is no run.
    """
    from wanbed.results.reading.run import load_run  # noqa: PLC0415 - ranks import this package and must start without pandas

    return load_run(Path(path))
