"""The losses of a run as a data frame."""

from os import PathLike
from pathlib import Path

import pandas as pd

from wanbed.api.argument_names import options_as_arguments
from wanbed.results.reading.losses import loss_frame
from wanbed.results.reading.run import Run, load_run


def losses(run: Run | str | PathLike[str], *, clock: Run | str | PathLike[str] | None = None) -> pd.DataFrame:
    """Return what the trials of a run learnt, a row for each loss: of each iteration, and of each evaluation.

    Columns are the swept paths, then ``variant``, ``repeat``, ``seed``, ``split`` (training or held_out),
    ``iteration``, ``loss`` (nats), ``time_s``, ``tokens`` and ``wan_bytes`` up to its end, ``clock`` (measured,
    virtual or simulated) and ``clock_run``. With ``clock``, a run of the same training such as a simulation, times and
    bytes are that run's. Raise InputError if it does not describe the same training, RunError for a folder that is no
    run.
    """
    with options_as_arguments():
        return loss_frame(_loaded(run), None if clock is None else _loaded(clock))


def _loaded(run: Run | str | PathLike[str]) -> Run:
    return run if isinstance(run, Run) else load_run(Path(run))
