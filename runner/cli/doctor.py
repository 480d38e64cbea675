"""``wanbed doctor``: report what this machine can do, and what to install for the rest."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from wanbed.ground.errors import InputError
from wanbed.results.text import count_text, milliseconds_text, rate_text
from wanbed.runner.cli.arguments import AsJson, HostsPerMachine, RackAddress, experiment_file
from wanbed.runner.cli.exit_status import log, one_line_errors
from wanbed.runner.runs.faults import MACHINE_LACKS

if TYPE_CHECKING:
    from wanbed.runner.rack_runs.diagnosis import CarriedPoint, MachineDiagnosis, PlainPath, RackDiagnosis
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
    from wanbed.runner.planner.experiment_file import load_experiment
    from wanbed.runner.rack_runs.diagnosis import diagnose_rack

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


_ABILITIES = ("root", "netem", "vxlan", "wireguard", "iperf3", "ping")


def print_rack(diagnosis: "RackDiagnosis", name: str) -> None:
    """Print the diagnosis; ``name`` is that of the experiment asked for."""
    console = Console(highlight=False, soft_wrap=True)
    carrying = [each for each in diagnosis.machines if each.node.carries_hosts]
    driving = [each.node.name for each in diagnosis.machines if not each.node.carries_hosts]
    only = f", {', '.join(driving)} only to drive" if driving else ""
    secured = "token authentication" if diagnosis.cluster["token_authentication"] else "NO AUTHENTICATION"
    lines = [
        f"rack          {diagnosis.cluster['address']}: {count_text(len(carrying), 'machine')} for hosts{only}; "
        f"Ray {diagnosis.cluster['ray']}, {secured}"
    ]
    for machine in carrying:
        lines += _machine_lines(machine)
    lines += [f"{'' if number else 'network':<14}{_path_line(each)}" for number, each in enumerate(diagnosis.paths)]
    alike: dict[Any, list[CarriedPoint]] = {}
    for point in diagnosis.points:
        alike.setdefault((point.reasons, point.notes, tuple(point.machine_of.items())), []).append(point)
    lines += [line for points in alike.values() for line in _point_lines(points, name)]
    for line in lines:
        console.print(line, markup=False)


def _rdma_text(ports: Sequence[Mapping[str, Any]]) -> str:
    """Return the ports of RDMA devices, whose traffic no emulated link sees."""
    named = [f"{port['device']}/{port['port']}{f' at {rate}' if (rate := port['rate']) else ''}" for port in ports]
    return f"RDMA {', '.join(named)}, which is kept unused"


def _machine_lines(machine: "MachineDiagnosis") -> list[str]:
    node, survey = machine.node, machine.survey
    words = [node.address, *(f"for {node.datacenter}" for _ in range(node.datacenter is not None))]
    if survey is not None:
        card = survey["card"] or {}
        speed = f" at {rate_text(card['speed_bps'])}" if card.get("speed_bps") else ""
        words += [f"{survey['cores']} x {survey['cpu']}", f"Linux {survey['kernel']}"]
        words += [f"{card['interface']}{speed}, MTU {card['mtu']}"] if card else []
        words += [f"{node.gpus:g} GPUs in Ray"] if node.gpus else []
        words += [_rdma_text(survey["rdma"])] if survey["rdma"] else []
        words.append("can " + " ".join(ability for ability in _ABILITIES if survey["can"].get(ability)))
    lines = [f"{node.name:<13} {'; '.join(words)}"]
    lines += [f"  in use by   {machine.in_use_by}"] if machine.in_use_by is not None else []
    if machine.clock_ahead_ms is not None and machine.clock_uncertainty_ms is not None:
        way = "ahead of" if machine.clock_ahead_ms >= 0 else "behind"
        lines.append(
            f"  clock       {milliseconds_text(abs(machine.clock_ahead_ms))} {way} this machine's, "
            f"give or take {milliseconds_text(machine.clock_uncertainty_ms)}"
        )
    if survey is not None and survey["exposed"] is not None:
        remedy = "`ray start --temp-dir` below a folder that nobody else may enter keeps them out"
        lines.append(f"  exposed     other users can replace what Ray runs: {survey['exposed']}; {remedy}")
    return [*lines, *(f"  missing     {line}" for line in machine.missing)]


def _path_line(path: "PlainPath") -> str:
    ends = f"{path.one} - {path.other}"
    if path.fault is not None:
        return f"{ends}: not measured: {path.fault}"
    there, back = rate_text(path.there_bps), rate_text(path.back_bps)
    return f"{ends}: RTT {milliseconds_text(path.rtt_ms)}, {there} there, {back} back"


def _point_lines(points: "list[CarriedPoint]", name: str) -> list[str]:
    """Return the lines of sweep points that are carried alike, or are not for the same reasons."""
    point = points[0]
    values = ", ".join(f"{path}={value}" for path, value in point.swept.items()) or name
    values += f" and {len(points) - 1} more" if len(points) > 1 else ""
    notes = [f"  note        {note}" for note in point.notes]
    if point.reasons:
        return [*(f"not carried   {values}: {reason}" for reason in point.reasons), *notes]
    machines: dict[str, list[str]] = {}
    for host, machine in point.machine_of.items():
        machines.setdefault(machine, []).append(host)
    placed = "; ".join(f"{machine}: {', '.join(hosts)}" for machine, hosts in machines.items())
    return [f"carried       {values}: {placed}", *notes]
