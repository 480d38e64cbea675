"""Say which sweep points of an experiment a rack can carry. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wanbed.ground.strict_model import InputError
from wanbed.ground.units import format_rate
from wanbed.ground.wanbed_error import WanbedError
from wanbed.results.text import milliseconds_text, rate_text
from wanbed.runner.rack.diagnosis.plain_paths import PlainPath
from wanbed.runner.rack.host_placement import Node, unknown_labels
from wanbed.runner.rack.point_placement import carrying_machines, place_point
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class CarriedPoint:
    """A sweep point: where its hosts would be, and why the rack does not carry it, nothing if it does.

    ``notes`` are what is not in the way, and may not be meant: labels of machines that name no datacenter of it.
    """

    swept: Mapping[str, str]
    machine_of: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def carried_point(
    point: SweepPoint,
    nodes: Sequence[Node],
    hosts_per_machine: int,
    paths: Sequence[PlainPath],
    *,
    missing: Mapping[str, Sequence[str]],
    lacking: Callable[[SweepPoint, Sequence[str]], Sequence[str]] = lambda _, __: (),
) -> CarriedPoint:
    """Place a sweep point's hosts, and compare its links with the plain network between their machines.

    ``missing`` is what each machine lacks for any experiment, ``lacking`` says what those that would carry hosts lack
    for this one.
    """
    try:
        placed = place_point(point, nodes, hosts_per_machine)
        wanted = lacking(point, carrying_machines([placed]))
    except InputError as refusal:
        return CarriedPoint(point.values, reasons=refusal.mistakes)
    except WanbedError as refusal:
        return CarriedPoint(point.values, reasons=(str(refusal),))
    lines = [f"{name}: {line}" for name in placed.machines for line in missing.get(name, ())]
    slower = slower_paths(point.topology, placed.machine_of, paths)
    notes = tuple(unknown_labels(point.topology, nodes))
    return CarriedPoint(point.values, placed.machine_of, (*lines, *wanted, *slower), notes)


def slower_paths(topology: Topology, machine_of: Mapping[str, str], paths: Sequence[PlainPath]) -> list[str]:
    """Return a line for each link that the plain network is slower than: by its RTT, or by its bandwidth.

    Each pair of datacenters is named once for each, with the worst pair of machines.
    """
    machines = {
        each.name: tuple(dict.fromkeys(machine_of[host.name] for host in each.hosts)) for each in topology.datacenters
    }
    between = {frozenset((path.one, path.other)): path for path in paths}
    lines = []
    for place, one in enumerate(topology.datacenters):
        for other in topology.datacenters[place:]:
            found = [
                (source, between[frozenset((source, target))])
                for source in machines[one.name]
                for target in machines[other.name]
                if frozenset((source, target)) in between
            ]
            lines += _slower(topology, one.name, other.name, found)
    # Inside a datacenter every path is found from both of its ends.
    return list(dict.fromkeys(lines))


def _slower(topology: Topology, one: str, other: str, found: Sequence[tuple[str, PlainPath]]) -> list[str]:
    where = f"inside {one}" if one == other else f"{one} to {other}"
    lines = [f"{path.one} and {path.other} do not reach each other: {path.fault}" for _, path in found if path.fault]
    measured = [(source, path) for source, path in found if path.rtt_ms is not None]
    wanted_ms = topology.rtt_ns(one, other) / 1e6
    slowest = max(measured, key=lambda each: each[1].rtt_ms or 0, default=None)
    if slowest is not None and (slowest[1].rtt_ms or 0) > wanted_ms:
        path = slowest[1]
        lines.append(
            f"{where}: an RTT of {milliseconds_text(wanted_ms)} is wanted, and {path.one} and {path.other} have "
            f"{milliseconds_text(path.rtt_ms)} without any emulation"
        )
    for source_name, target_name in dict.fromkeys([(one, other), (other, one)]):
        rate_bps = topology.line_rate_bps(source_name, target_name)
        bandwidths = [
            (path.bps(source if source_name == one else _end(path, source)) or 0, path) for source, path in measured
        ]
        least = min(bandwidths, key=lambda each: each[0], default=None)
        if rate_bps is not None and least is not None and least[0] < rate_bps:
            way = f"inside {one}" if one == other else f"{source_name} to {target_name}"
            lines.append(
                f"{way}: {format_rate(rate_bps)} between two hosts is wanted, and {least[1].one} and {least[1].other} "
                f"have {rate_text(least[0])} without any emulation"
            )
    # A line is data too, in JSON.
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _end(path: PlainPath, source: str) -> str:
    return path.other if source == path.one else path.one
