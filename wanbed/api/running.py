"""Run experiments on the engine that they name. Nothing is printed unless progress is wanted."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from wanbed.api.argument_names import options_as_arguments
from wanbed.api.experiment import Experiment, checked_experiment
from wanbed.api.schedule_modules import check_importable, importable_by_ranks
from wanbed.api.simulating import loaded, log, progress_stream, simulated
from wanbed.ground.errors import InputError, MissingError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.results.reading.run import Run
from wanbed.runner.emulation.virtual_run import InsideError
from wanbed.runner.execution import execute
from wanbed.runner.runs.faults import BAD_INPUT, MACHINE_LACKS, TrialError
from wanbed.runner.runs.run_request import RackRequest, RunRequest


def run(
    experiment: Experiment | str | PathLike[str],
    *,
    runs: str | PathLike[str] = "runs",
    substrate: str = "auto",
    rack: str | None = None,
    hosts_per_machine: int = 1,
    overlay: str = "vxlan",
    resume: bool = False,
    keep_gradients: bool = False,
    progress: bool = False,
) -> Run:
    """Run an experiment, or that of a file, on its engine. Return the run, whose folder is below ``runs``.

    An emulation needs root unless its clock is virtual, or a program that was started in a user namespace: the error
    that is raised without names the command. It measures every link first: where one was outside tolerance,
    the rows of ``run.summary`` are not ``calibrated``. ``rack`` is the address of a Ray cluster, HOST:PORT, over whose
    machines the engine ``rack`` spreads the hosts. Arguments are those of the command; ``progress`` shows it on
    standard error. Raise InputError for what cannot run, MissingError for what the machine lacks, TrialError for a
    trial that failed; all errors that can be expected are a WanbedError.
    """
    checked = checked_experiment(experiment)
    if checked.spec.engine == "simulate":
        emulated_only = {
            "keep_gradients": keep_gradients,
            "substrate": substrate != "auto",
            "rack": rack is not None,
        }
        given = tuple(argument for argument, is_given in emulated_only.items() if is_given)
        check_exclusions(Exclusion(given, "a simulation has none", "give engine: emulate"))
        return simulated(checked, Path(runs), jobs=None, resume=resume, progress=progress)
    check_importable(checked)
    if checked.spec.engine == "rack" and rack is None:
        raise InputError("engine: rack wants the machines' address: give rack, HOST:PORT of a Ray cluster's head")
    with (
        options_as_arguments(),
        nullcontext() if rack is not None else importable_by_ranks(checked.spec),
        progress_stream(progress) as stream,
        _errors_inside() as errors,
    ):
        request = RunRequest(
            checked.resolved() if rack is None else checked.resolved("rack"),
            checked.document.source,
            checked.document.directory,
            Path(runs),
            log,
            substrate=substrate,
            rack=None if rack is None else RackRequest(rack, hosts_per_machine, overlay),
            resume=resume,
            keep_gradients=keep_gradients,
            stream=stream,
            standard_error=errors,
        )
        path = execute(request)
    return loaded(path)


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
