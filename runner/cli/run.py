"""``wanbed run``: run an experiment, emulated or simulated as its file selects."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wanbed.ground.errors import InputError, prefixed
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.cli.arguments import (
    AsJson,
    Clock,
    DryRun,
    ExperimentFile,
    HostsPerMachine,
    Jobs,
    OverlayName,
    Overrides,
    Queue,
    RackAddress,
    Resume,
    RunsFolder,
    SubstrateName,
)
from wanbed.runner.cli.exit_status import log, one_line_errors
from wanbed.runner.runs.faults import OUTSIDE_TOLERANCE

if TYPE_CHECKING:
    from wanbed.runner.experiment.experiment_document import ExperimentDocument

_RACK = "rack"
"""The engine that emulates over the machines of a rack."""


def run(
    file: ExperimentFile,
    *,
    overrides: Overrides = None,
    engine: Annotated[str | None, typer.Option(help="Short for --set engine=NAME.")] = None,
    clock: Clock = None,
    substrate: SubstrateName = "auto",
    rack: RackAddress = None,
    hosts_per_machine: HostsPerMachine = None,
    overlay: OverlayName = None,
    queue: Queue = False,
    jobs: Jobs = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    runs: RunsFolder = Path("runs"),
    keep_gradients: Annotated[
        bool, typer.Option("--keep-gradients", help="Keep the last iteration's gradients that torch computed.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Mark a trial that fails, and run the others. Exit status 4 then.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the sweep: calibrate every link, run every trial, and write the run folder and its report.

    With `engine: simulate` in the file, this is `wanbed simulate`. With `clock: virtual` the trials run in virtual
    time, inside a guest kernel that `make virtual` builds. With --rack the hosts are spread over the machines of a Ray
    cluster. Exit status 1 if a link was outside tolerance or the machine saturated: the last line says where.
    What the file lets fail ends no run; another failure of a trial does, unless --keep-going is given.
    """
    with one_line_errors():
        shortcuts = [f"{name}={value}" for name, value in (("engine", engine), ("clock", clock)) if value is not None]
        given = {"--hosts-per-machine": hosts_per_machine, "--overlay": overlay, "--queue": queue or None}
        others = [option for option, value in given.items() if value is not None]
        from wanbed.runner.experiment.experiment_document import ExperimentDocument

        document = ExperimentDocument.read(file, [*(overrides or []), *shortcuts])
        document = with_engine(document, file, rack, others=others, dry_run=dry_run)
        from wanbed.runner.cli.user_namespace import enter_user_namespace_for
        from wanbed.runner.emulation.network_choice import source_of
        from wanbed.runner.emulation.virtual_run import InsideError
        from wanbed.runner.execution import execute
        from wanbed.runner.planner.experiment_file import resolve_document
        from wanbed.runner.runs.run_request import RackRequest, RunRequest

        if not dry_run and rack is None:
            enter_user_namespace_for(document, substrate)
        experiment = resolve_document(document)
        request = RunRequest(
            experiment,
            source_of(file),
            file.parent,
            runs,
            log,
            substrate=substrate,
            rack=None if rack is None else RackRequest(rack, hosts_per_machine or 1, overlay or "vxlan", queue=queue),
            jobs=jobs,
            resume=resume,
            keep_gradients=keep_gradients,
            keep_going=keep_going,
        )
        request.check()
        if not request.simulates:
            from wanbed.runner.emulation.relay_limits import check_relay
            from wanbed.runner.emulation.run_dilation import check_link_rates
            from wanbed.runner.emulation.virtual_clock import wants_guest

            wants_guest(experiment.spec, substrate)
            with prefixed(f"{file}: "):
                check_relay(experiment.points(), substrate)
                check_link_rates(experiment.points())
        if dry_run:
            from wanbed.runner.cli.dry_run import list_trials

            list_trials(experiment, as_json)
            return
        try:
            path = execute(request)
        except InsideError as failure:
            for note in getattr(failure, "__notes__", []):
                log(note)
            raise typer.Exit(failure.status) from None
        from wanbed.runner.cli.outcome import check_trials, show_outcome

        comparable = show_outcome(path, as_json)
        if keep_going:
            check_trials(path)
    if not comparable:
        raise typer.Exit(OUTSIDE_TOLERANCE)


def with_engine(
    document: "ExperimentDocument", file: Path, rack: str | None, *, others: Sequence[str], dry_run: bool
) -> "ExperimentDocument":
    """Return the document of ``file``, on a rack's engine if there is an address of a ``rack``.

    ``others`` are the options given that only a rack has. Raise InputError for an engine that needs an address, and for
    options that do not go together.
    """
    engine = document.spec.engine
    if rack is None:
        if engine == _RACK and not dry_run:
            raise InputError(
                f"{file}: engine: rack wants the machines' address: give --rack HOST:PORT of a Ray cluster's head, or "
                "--engine emulate"
            )
        check_exclusions(Exclusion(tuple(others), "only a run over a rack has it", "give --rack HOST:PORT too"))
        return document
    if engine == "simulate":
        raise InputError(f"--rack: {file} simulates: call `wanbed simulate --rack`, or give --engine rack to emulate")
    return document if engine == _RACK else document.overridden(f"engine={_RACK}")
