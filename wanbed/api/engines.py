"""Run and simulate experiments. Nothing is printed unless progress is wanted; notes go to the logger ``wanbed``."""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TextIO

from ground.strict_model import InputError
from results import load
from results.reading.run import Run
from results.reading.summary_table import write_summary
from runner.emulation.emulated_run import emulated_run
from runner.emulation.virtual.virtual_run import InsideError
from runner.runs.faults import BAD_INPUT, MACHINE_LACKS, TrialError
from runner.simulated_runs.simulated_run import simulated_run
from testbed.kernel.missing import MissingError
from wanbed.api.argument_names import options_as_arguments
from wanbed.api.experiment import Experiment, WrittenExperiment, written_experiment
from wanbed.api.schedule_modules import check_importable, importable_by_ranks, in_this_program

_log = logging.getLogger("wanbed").info


def simulate(
    experiment: Experiment | str | PathLike[str],
    *,
    runs: str | PathLike[str] = "runs",
    jobs: int | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Simulate an experiment, or that of a file, as discrete events. Return the run, whose folder is below ``runs``.

    ``jobs`` trials are simulated at a time, by default one for each core; with schedules that this script or notebook
    defines itself, one. ``resume`` continues the last unfinished run. ``progress`` shows it on standard error. Raise
    InputError for what cannot be simulated, SimulationError for a schedule that fails or deadlocks, TrialError if a
    process is killed.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: {jobs} is below 1")
    written = written_experiment(experiment)
    return _simulated(written, Path(runs), jobs=jobs, resume=resume, progress=progress)


def run(
    experiment: Experiment | str | PathLike[str],
    *,
    runs: str | PathLike[str] = "runs",
    substrate: str = "auto",
    resume: bool = False,
    keep_gradients: bool = False,
    progress: bool = False,
) -> Run:
    """Run an experiment, or that of a file, on its engine. Return the run, whose folder is below ``runs``.

    An emulation needs root unless its clock is virtual. It measures every link first: where one was outside tolerance,
    the rows of ``run.summary`` are not ``calibrated``. Arguments are those of the command; ``progress`` shows it on
    standard error. Raise InputError for what cannot run, MissingError for what the machine lacks, TrialError for a
    trial that failed; all errors that can be expected are a WanbedError.
    """
    written = written_experiment(experiment)
    if written.spec.engine == "simulate":
        if keep_gradients or substrate != "auto":
            argument = "keep_gradients" if keep_gradients else "substrate"
            raise InputError(f"{argument}: a simulation has none: leave it out, or give engine: emulate")
        return _simulated(written, Path(runs), jobs=None, resume=resume, progress=progress)
    check_importable(written)
    with (
        options_as_arguments(),
        importable_by_ranks(written.spec),
        _stream(progress) as stream,
        _errors_inside() as errors,
    ):
        path = emulated_run(
            written.resolved(),
            written.source,
            written.directory,
            Path(runs),
            substrate=substrate,
            resume=resume,
            keep_gradients=keep_gradients,
            log=_log,
            stream=stream,
            standard_error=errors,
        )
    return _loaded(path)


def _simulated(written: WrittenExperiment, runs: Path, *, jobs: int | None, resume: bool, progress: bool) -> Run:
    if in_this_program(written.spec):
        if jobs not in {None, 1}:
            raise InputError(
                f"jobs: {jobs} processes cannot import a schedule that this script or notebook defines itself: move it "
                "to a module, or leave jobs out"
            )
        jobs = 1
    with options_as_arguments(), _stream(progress) as stream:
        path = simulated_run(written.resolved("simulate"), runs, resume=resume, jobs=jobs, log=_log, stream=stream)
    return _loaded(path)


def _loaded(path: Path) -> Run:
    run = load(path)
    write_summary(run)
    return run


@contextmanager
def _stream(progress: bool) -> Iterator[TextIO | None]:
    if progress:
        yield None
    else:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            yield nowhere


@contextmanager
def _errors_inside() -> Iterator[BinaryIO]:
    """Keep what a run in virtual time prints, and raise the error that it ends with."""
    with tempfile.TemporaryFile() as printed:
        try:
            yield printed
        except InsideError as failure:
            printed.seek(0)
            lines = printed.read().decode(errors="replace").strip().splitlines()
            message = lines[-1].removeprefix("wanbed: ") if lines else str(failure)
            kind = {BAD_INPUT: InputError, MACHINE_LACKS: MissingError}.get(failure.status, TrialError)
            raise kind(message) from None
