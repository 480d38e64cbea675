"""Print what ``wanbed doctor --rack`` has found."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from wanbed.results.text.number_text import count_text, milliseconds_text, rate_text
from wanbed.runner.rack.diagnosis.carried_points import CarriedPoint
from wanbed.runner.rack.diagnosis.plain_paths import PlainPath
from wanbed.runner.rack.diagnosis.rack_diagnosis import MachineDiagnosis, RackDiagnosis

_ABILITIES = ("root", "netem", "vxlan", "wireguard", "iperf3", "ping")


def print_rack(diagnosis: RackDiagnosis, name: str) -> None:
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


def _machine_lines(machine: MachineDiagnosis) -> list[str]:
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
    return [*lines, *(f"  missing     {line}" for line in machine.missing)]


def _path_line(path: PlainPath) -> str:
    ends = f"{path.one} - {path.other}"
    if path.fault is not None:
        return f"{ends}: not measured: {path.fault}"
    there, back = rate_text(path.there_bps), rate_text(path.back_bps)
    return f"{ends}: RTT {milliseconds_text(path.rtt_ms)}, {there} there, {back} back"


def _point_lines(points: list[CarriedPoint], name: str) -> list[str]:
    """Return the lines of sweep points that are carried alike, or for the same reasons not."""
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
