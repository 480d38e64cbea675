"""``wanbed doctor``: report what this machine can do, and what to install for the rest."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from wanbed.ground.strict_model import InputError
from wanbed.runner.cli.arguments import AsJson, experiment_file
from wanbed.runner.cli.exit_status import one_line_errors
from wanbed.runner.cli.log_line import log
from wanbed.runner.cli.rack_options import HostsPerMachine, RackAddress
from wanbed.runner.runs.faults import MACHINE_LACKS

if TYPE_CHECKING:
    from wanbed.testbed.doctor import Diagnosis
    from wanbed.testbed.gpus.gpus import Gpu


def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="With --rack: an experiment, of whose sweep points is said which the rack can carry.",
            parser=experiment_file,
        ),
    ] = None,
    *,
    rack: RackAddress = None,
    hosts_per_machine: HostsPerMachine = None,
    as_json: AsJson = False,
) -> None:
    """Report what this machine can do, and what to install for the rest. Exit status 5 if it cannot emulate a WAN.

    With --rack report that of every machine of a Ray cluster, and the plain network between them: a second for each
    pair of machines, during which 16 MiB each way pass their cards. Exit status 5 if a machine lacks something.
    """
    if rack is not None:
        _report_rack(rack, file, hosts_per_machine or 1, as_json)
        return
    with one_line_errors():
        if file is not None or hosts_per_machine is not None:
            option = "FILE" if file is not None else "--hosts-per-machine"
            raise InputError(f"{option}: doctor takes it with --rack HOST:PORT only")
        from wanbed.testbed.doctor import diagnose

        diagnosis = diagnose()
        if as_json:
            print(json.dumps(diagnosis.document(), indent=2))
        else:
            _print(diagnosis)
    if diagnosis.missing:
        raise typer.Exit(MACHINE_LACKS)


def _report_rack(address: str, file: Path | None, hosts_per_machine: int, as_json: bool) -> None:
    # A machine that only simulates lacks what these import.
    from wanbed.runner.cli.network.rack_report import print_rack
    from wanbed.runner.planner.experiment_file import load_experiment
    from wanbed.runner.rack.diagnosis.rack_diagnosis import diagnose_rack

    with one_line_errors():
        points = () if file is None else load_experiment(file, ["engine=rack"]).points()
        diagnosis = diagnose_rack(address, log, points, hosts_per_machine)
        if as_json:
            print(json.dumps(diagnosis.document(), indent=2))
        else:
            print_rack(diagnosis, "" if file is None else str(file))
    if diagnosis.lacks:
        raise typer.Exit(MACHINE_LACKS)


def _print(diagnosis: "Diagnosis") -> None:
    from wanbed.testbed.doctor import WITHOUT_NETEM, WITHOUT_WAN

    console = Console(highlight=False, soft_wrap=True)
    lacks = f" ({diagnosis.tier.lacks})" if diagnosis.tier.lacks else ""
    console.print(f"tier          {diagnosis.tier.name}{lacks}", markup=False)
    for right in diagnosis.rights:
        console.print(f"  more with   {right.right}: {right.brings}", markup=False)
    if diagnosis.substrate:
        console.print(f"netem         {diagnosis.substrate}: {diagnosis.reason}", markup=False)
    else:
        console.print(f"netem         none: {WITHOUT_NETEM}{WITHOUT_WAN if diagnosis.hosts else ''}", markup=False)
    for offer in diagnosis.offers:
        state = "yes" if offer.available else "no "
        console.print(f"  {offer.name:<10}  {state} {offer.reason}", markup=False)
    relay = diagnosis.relay
    console.print(f"relay         {'yes' if relay.available else 'no'}: {relay.reason}", markup=False)
    virtual = diagnosis.virtual_time
    console.print(f"virtual time  {'yes' if virtual.available else 'no'}: {virtual.reason}", markup=False)
    if virtual.path is not None:
        console.print(f"  kernel      {virtual.path}, configuration {virtual.configuration_hash}", markup=False)
    for remedy in virtual.root_for:
        console.print(f"  with root   {remedy}", markup=False)
    console.print(f"simulator     {diagnosis.simulator}", markup=False)
    if not diagnosis.gpus:
        console.print("GPUs          none", markup=False)
    for number, gpu in enumerate(diagnosis.gpus):
        console.print(f"{'' if number else 'GPUs':<14}{_gpu_text(gpu)}", markup=False)
    for each in diagnosis.missing:
        console.print(f"missing       {each.what}: {each.why}. Remedy: {each.install}", markup=False)


def _gpu_text(gpu: "Gpu") -> str:
    memory = "" if gpu.memory_bytes is None else f", {gpu.memory_bytes / 2**30:.0f} GiB"
    fault = "" if gpu.fault is None else f", cannot be used: {gpu.fault}"
    driver = "" if gpu.driver is None else f", driver {gpu.driver}"
    return f"{gpu.model}{memory}{driver}{'' if gpu.uuid is None else f', {gpu.uuid}'}{fault}"
