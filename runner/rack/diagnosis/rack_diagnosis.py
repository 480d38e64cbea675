"""Diagnose a rack: the resources of each machine, the paths between them, and the hosts that they can carry."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wanbed.runner.rack import on_machine
from wanbed.runner.rack.agents import actor_on_node, held_by
from wanbed.runner.rack.diagnosis.carried_points import CarriedPoint, carried_point
from wanbed.runner.rack.diagnosis.plain_paths import PlainPath, measure_paths
from wanbed.runner.rack.diagnosis.wanted_of_machines import WantedOfMachines
from wanbed.runner.rack.host_placement import Node
from wanbed.runner.rack.ray_handle import answer_of
from wanbed.runner.rack.same_sources import Rack, rack_at
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.rack.machine_handle import MachineLostError

_PATIENCE_S = 120.0
_CLOCK_READINGS = 5


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
        """Whether a machine that carries hosts lacks something, or none carries hosts."""
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
