"""Diagnose a rack: the resources of each machine, the plain paths between them, and the sweep points they can carry."""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError, WanbedError
from wanbed.ground.units import format_rate
from wanbed.results.text import milliseconds_text, rate_text
from wanbed.runner.rack_runs import on_machine
from wanbed.runner.rack_runs.agents import actor_on_node, answer_of, held_by
from wanbed.runner.rack_runs.cluster import Node
from wanbed.runner.rack_runs.placement import carrying_machines, place_point, unknown_labels
from wanbed.runner.rack_runs.rack import Rack, rack_at
from wanbed.runner.rack_runs.sent_programs import ProgramNeeds, packed_programs, program_needs, programs_of
from wanbed.runner.rack_runs.user_modules import UserModules, schedules_of, user_modules
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.run_folder import Log
from wanbed.runner.trainings.program.resolution import ResolvedProgram
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.rack.machine_handle import MachineLostError

_PATIENCE_S = 120.0
_CLOCK_READINGS = 5
_PATH_PATIENCE_S = 60.0

Ask = Callable[[str, str, tuple[Any, ...]], str | None]
"""Calls a method of ``on_machine.Wanted`` on the named machine. Returns what the machine lacks, None if nothing."""


@dataclass(frozen=True)
class PlainPath:
    """The measured performance of the plain network between two machines.

    ``there_bps`` is the bandwidth from ``one`` to ``other``, ``back_bps`` from ``other`` to ``one``. ``fault`` is the
    reason why it could not be measured, None if it was measured.
    """

    one: str
    other: str
    rtt_ms: float | None = None
    there_bps: float | None = None
    back_bps: float | None = None
    fault: str | None = None

    def bps(self, source: str) -> float | None:
        """Return the bandwidth from one of the two machines to the other."""
        return self.there_bps if source == self.one else self.back_bps


@dataclass(frozen=True)
class CarriedPoint:
    """A sweep point: where its hosts would be, and why the rack does not carry it, nothing if it does.

    ``notes`` are what is not in the way, and may not be meant: labels of machines that name no datacenter of it.
    """

    swept: Mapping[str, str]
    machine_of: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineDiagnosis:
    """The known facts of a machine.

    ``in_use_by`` is the run that uses it. ``survey`` is that of ``wanbed.testbed.rack.machine.survey``, None for a
    machine that only drives or does not answer. ``clock_ahead_ms`` is how far its wall clock is ahead of this machine's
    wall clock, and ``clock_uncertainty_ms`` is the uncertainty of that figure.
    """

    node: Node
    in_use_by: str | None = None
    survey: Mapping[str, Any] | None = None
    missing: tuple[str, ...] = ()
    clock_ahead_ms: float | None = None
    clock_uncertainty_ms: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the machine in plain JSON types."""
        return {**asdict(self), "carries_hosts": self.node.carries_hosts}


@dataclass(frozen=True)
class RackDiagnosis:
    """A rack: its cluster, its machines, the paths between those that no run uses, and the sweep points asked for."""

    cluster: Mapping[str, Any]
    machines: tuple[MachineDiagnosis, ...]
    paths: tuple[PlainPath, ...]
    points: tuple[CarriedPoint, ...]

    @property
    def lacks(self) -> bool:
        """True if a machine that carries hosts lacks something, or none carries hosts."""
        carrying = [each for each in self.machines if each.node.carries_hosts]
        return not carrying or any(each.missing for each in carrying)

    def document(self) -> dict[str, Any]:
        """Return the diagnosis as the JSON document of ``wanbed doctor --rack``."""
        return {
            "cluster": dict(self.cluster),
            "machines": [each.document() for each in self.machines],
            "plain_network": [asdict(each) for each in self.paths],
            "sweep_points": [{**asdict(each), "carried": not each.reasons} for each in self.points],
        }


def diagnose_rack(
    address: str, log: Log, points: Sequence[SweepPoint] = (), hosts_per_machine: int = 1, runs: Path = Path("runs")
) -> RackDiagnosis:
    """Ask every machine of the cluster at ``address``, and measure between those that no run uses.

    ``points`` are sweep points of which is said whether the rack carries them, ``runs`` the folder in which their run
    would be. Raise what ``rack_at`` raises.
    """
    with rack_at(address, log) as rack:
        surveyors = {
            node.name: actor_on_node(on_machine.Surveyor, node, max_concurrency=2).remote(rack.sent)
            for node in rack.carrying
        }
        asked = {node.name: surveyors[node.name].facts.remote(node.address) for node in rack.carrying}
        machines = tuple(_machine(node, surveyors.get(node.name), asked.get(node.name)) for node in rack.nodes)
        idle = [each.node for each in machines if each.survey is not None and each.in_use_by is None]
        if busy := [each.node.name for each in machines if each.in_use_by is not None]:
            log(f"not measured between machines that a run uses: {', '.join(busy)}")
        paths = tuple(measure_paths(idle, surveyors)) if len(idle) > 1 else ()
        missing = {each.node.name: each.missing for each in machines}
        silent = {each.node.name for each in machines if each.survey is None}

        def ask(machine: str, method: str, wanted: tuple[Any, ...]) -> str | None:
            if machine in silent:
                return None
            try:
                lacking = answer_of(machine, getattr(surveyors[machine], method).remote(*wanted), _PATIENCE_S)
            except (MachineLostError, TimeoutError) as lost:
                return str(lost)
            return None if lacking is None else str(lacking)

        wanted = WantedOfMachines(ask, runs)
        carried = tuple(
            carried_point(point, rack.nodes, hosts_per_machine, paths, missing=missing, lacking=wanted.lacking)
            for point in points
        )
        return RackDiagnosis(_cluster(rack), machines, paths, carried)


def _machine(node: Node, surveyor: Any, asked: Any) -> MachineDiagnosis:
    if surveyor is None:
        return MachineDiagnosis(node)
    try:
        survey = answer_of(node.name, asked, _PATIENCE_S)
    except (MachineLostError, TimeoutError) as silent:
        return MachineDiagnosis(node, missing=(str(silent),))
    ahead_ms = uncertainty_ms = None
    with suppress(MachineLostError, TimeoutError):
        ahead_ms, uncertainty_ms = _clock(node, surveyor)
    return MachineDiagnosis(node, held_by(node), survey, tuple(survey["missing"]), ahead_ms, uncertainty_ms)


def _clock(node: Node, surveyor: Any) -> tuple[float, float]:
    """Return by how many ms a machine's wall clock is ahead of this one's, and how exactly that is known."""
    readings = []
    for _ in range(_CLOCK_READINGS):
        asked_ns = time.time_ns()
        theirs_ns = answer_of(node.name, surveyor.clock_ns.remote(), _PATIENCE_S)
        answered_ns = time.time_ns()
        readings.append((answered_ns - asked_ns, theirs_ns - (asked_ns + answered_ns) / 2))
    took_ns, ahead_ns = min(readings)
    return ahead_ns / 1e6, took_ns / 2e6


def _cluster(rack: Rack) -> dict[str, Any]:
    return {name: value for name, value in rack.document().items() if name != "nodes"}


def rounds(names: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield every pair of names once, in rounds in which each name is in one pair at most."""
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    for _ in range(len(circle) - 1):
        pairs = zip(circle[: len(circle) // 2], circle[: len(circle) // 2 - 1 : -1], strict=True)
        yield [(one, other) for one, other in pairs if one is not None and other is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def measure_paths(nodes: Sequence[Node], surveyors: Mapping[str, Any]) -> list[PlainPath]:
    """Measure every path between the machines of ``nodes``, none of whose cards is in two measurements at a time."""
    address_of = {node.name: node.address for node in nodes}
    paths = []
    for pairs in rounds([node.name for node in nodes]):
        under_way = []
        for one, other in pairs:
            token = secrets.token_hex(16)
            try:
                port = answer_of(other, surveyors[other].listen.remote(address_of[other], token), _PATH_PATIENCE_S)
            except (OSError, MachineLostError) as fault:
                paths.append(PlainPath(one, other, fault=_line(fault)))
                continue
            answering = surveyors[other].answer.remote()
            measuring = surveyors[one].measure.remote(address_of[other], port, token)
            under_way.append((one, other, answering, measuring))
        for one, other, answering, measuring in under_way:
            paths.append(_path(one, other, answering, measuring))
    order = {node.name: place for place, node in enumerate(nodes)}
    return sorted(map(_the_first_first(order), paths), key=lambda path: (order[path.one], order[path.other]))


def _path(one: str, other: str, answering: Any, measuring: Any) -> PlainPath:
    try:
        found = answer_of(one, measuring, _PATH_PATIENCE_S)
        answer_of(other, answering, _PATH_PATIENCE_S)
    except (OSError, MachineLostError) as fault:
        return PlainPath(one, other, fault=_line(fault))
    return PlainPath(one, other, found["rtt_ms"], found["out_bps"], found["in_bps"])


def _the_first_first(order: Mapping[str, int]) -> Any:
    def turned(path: PlainPath) -> PlainPath:
        if order[path.one] < order[path.other]:
            return path
        return PlainPath(path.other, path.one, path.rtt_ms, path.back_bps, path.there_bps, path.fault)

    return turned


def _line(fault: BaseException) -> str:
    """Return what went wrong on the machine, without the traceback that Ray adds."""
    cause = getattr(fault, "cause", fault)
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


class WantedOfMachines:
    """Ask machines what they lack for sweep points, each machine once for the same.

    ``runs`` is the folder that runs are written to, which no machine would be sent.
    """

    def __init__(self, ask: Ask, runs: Path) -> None:
        self._ask, self._runs = ask, runs
        self._answers: dict[tuple[str, str, str], str | None] = {}
        self._modules: dict[tuple[str, ...], UserModules] = {}
        self._needs: list[tuple[tuple[tuple[str, ResolvedProgram], ...], ProgramNeeds]] = []

    def lacking(self, point: SweepPoint, machines: Sequence[str]) -> list[str]:
        """Return a line for each thing that a machine lacks.

        Raise InputError for what cannot be sent, and does not have to be on the machines either.
        """
        compute = point.spec.compute
        modules, needs = self._modules_of(point), self._needs_of(point)
        lines = []
        for machine in machines:
            # A back end of the user's is imported from the modules.
            for method, wanted, key in (
                ("load_modules", (modules,), f"{modules.schedules} {modules.backends}"),
                ("lacking_for", (compute.backend_path, compute.options), _key(compute.backend_path, compute.options)),
                ("lacking_program", (needs,), repr(needs)),
            ):
                if (line := self._asked(machine, method, wanted, key)) is not None:
                    lines.append(f"{machine}: {line}")
        return lines

    def _asked(self, machine: str, method: str, wanted: tuple[Any, ...], key: str) -> str | None:
        own = machine, method, key
        if own not in self._answers:
            self._answers[own] = self._ask(machine, method, wanted)
        return self._answers[own]

    def _modules_of(self, point: SweepPoint) -> UserModules:
        classes = (*schedules_of(point.scheduled), point.spec.compute.backend_path)
        if classes not in self._modules:
            self._modules[classes] = user_modules([point])
        return self._modules[classes]

    def _needs_of(self, point: SweepPoint) -> ProgramNeeds:
        programs = tuple(programs_of([point]))
        if not programs:
            return ProgramNeeds()
        known = next((needs for each, needs in self._needs if each == programs), None)
        if known is None:
            known = program_needs(programs, packed_programs((program for _, program in programs), self._runs))
            self._needs.append((programs, known))
        return known


def _key(*parts: Any) -> str:
    return json.dumps(parts, default=str, sort_keys=True)


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
