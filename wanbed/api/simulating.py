"""Simulate experiments. Nothing is printed unless progress is wanted; notes go to the logger ``wanbed``."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TextIO

from wanbed.api.argument_names import options_as_arguments
from wanbed.api.experiment import CheckedExperiment, Experiment, checked_experiment
from wanbed.api.schedule_modules import in_this_program
from wanbed.ground.errors import InputError
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.results.reading.summary import write_summary
from wanbed.runner.execution import execute
from wanbed.runner.rack_runs.pools import check_jobs
from wanbed.runner.runs.run_request import RackRequest, RunRequest

log = logging.getLogger("wanbed").info


def simulate(
    experiment: Experiment | str | PathLike[str],
    *,
    runs: str | PathLike[str] = "runs",
    jobs: int | None = None,
    rack: str | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Simulate an experiment, or that of a file, as discrete events. Return the run, whose folder is below ``runs``.

    ``jobs`` trials are simulated at a time, by default one for each core; with schedules that this script or notebook
    defines itself, one. With ``rack``, the address of a Ray cluster, HOST:PORT, they are simulated on its machines, as
    many at a time as it has CPUs. ``resume`` continues the last unfinished run. ``progress`` shows it on standard
    error. Raise InputError for what cannot be simulated, SimulationError for a schedule that fails or deadlocks,
    TrialError if a process is killed.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: {jobs} is below 1")
    checked = checked_experiment(experiment)
    return simulated(checked, Path(runs), jobs=jobs, rack=rack, resume=resume, progress=progress)


def simulated(
    checked: CheckedExperiment, runs: Path, *, jobs: int | None, rack: str | None = None, resume: bool, progress: bool
) -> Run:
    """Simulate a checked experiment, with the arguments of ``simulate``, and return the run."""
    if in_this_program(checked.spec):
        if rack is not None:
            raise InputError(
                "rack: its machines cannot import a schedule that this script or notebook defines itself: move it to a "
                "module that they have, or leave rack out"
            )
        if jobs not in {None, 1}:
            raise InputError(
                f"jobs: {jobs} processes cannot import a schedule that this script or notebook defines itself: move it "
                "to a module, or leave jobs out"
            )
        jobs = 1
    with options_as_arguments(), progress_stream(progress) as stream:
        check_jobs(jobs, rack)
        request = RunRequest(
            checked.resolved("simulate"),
            checked.document.source,
            checked.document.directory,
            runs,
            log,
            rack=None if rack is None else RackRequest(rack),
            jobs=jobs,
            resume=resume,
            stream=stream,
        )
        path = execute(request)
    return loaded(path)


def loaded(path: Path) -> Run:
    """Read a run that has ended, and write its summary for other tools."""
    run = load(path)
    write_summary(run.summary, run.path)
    return run


@contextmanager
def progress_stream(progress: bool) -> Iterator[TextIO | None]:
    """Give where progress goes: None for standard error, or nowhere."""
    if progress:
        yield None
    else:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            yield nowhere
