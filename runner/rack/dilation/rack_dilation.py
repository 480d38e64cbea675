"""Choose the dilation of a run over a rack: what each machine has to carry, against what it can.

Machines are measured as a single one is, each by itself: two hosts in two datacenters on it, both directions at once,
at the load that the experiment puts on this machine. A card that states its speed bounds that. The largest factor that
a machine needs is the run's.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from results.text.number_text import count_text, rate_text
from runner.experiment.quantities import AUTO
from runner.rack.point_placement import PointPlacement
from runner.resolve.demand import NetworkDemand
from runner.resolve.dilation import choose_dilation
from runner.runs.run_folder import Log
from testbed.network.topology import Topology
from testbed.rack.driver.inventory import naming
from testbed.rack.machine_facts import MachineFacts
from testbed.rack.machine_handle import MachineHandle, Pending

_DIRECTIONS = 2


class MeasuredMachine(MachineHandle, Protocol):
    """A machine that measures what it carries."""

    def start_measuring_capacity(self, demand_bps: int) -> Pending:
        """Have it measure what its kernel carries at that load, in bit/s, and return without waiting."""


@dataclass(frozen=True)
class MachineLoad:
    """What one machine has to carry at most and what it can, both in bit/s, and its cores for how many hosts."""

    demand_bps: int
    capacity_bps: int
    cores: int
    hosts: int


@dataclass(frozen=True)
class RackDilation:
    """The factor of a run over a rack. ``machines`` are those that were measured, none where it was not derived."""

    factor: float
    machines: Mapping[str, MachineLoad]

    @property
    def tightest(self) -> str | None:
        """The machine that decides, None if none was measured."""
        return max(
            self.machines,
            key=lambda each: self.machines[each].demand_bps / self.machines[each].capacity_bps,
            default=None,
        )

    def facts(self) -> dict[str, Any]:
        """Return the factor, and what it was derived from, as in manifests."""
        tightest = self.tightest
        if tightest is None:
            return {"dilation": self.factor, "capacity_bps": None}
        return {
            "dilation": self.factor,
            "capacity_bps": self.machines[tightest].capacity_bps,
            "dilation_decided_by": tightest,
            "dilation_machines": {name: asdict(load) for name, load in self.machines.items()},
        }


def decide_rack_dilation(
    placements: Collection[PointPlacement], handles: Mapping[str, MeasuredMachine], log: Log, *, shaped: bool
) -> RackDilation:
    """Return the configured factor, or have machines measured and derive it.

    Machines that carry no rate are not measured; nor is any if the network is not ``shaped``. Raise CapacityError if a
    machine cannot carry what it has to, and what measuring raises, with the machine's name.
    """
    points = [placed.point for placed in placements]
    configured = points[0].spec.dilation
    if configured != AUTO:
        return RackDilation(choose_dilation(0, 1, configured), {})
    demands = {name: bps for name, bps in _demands_bps(placements).items() if bps} if shaped else {}
    if demands:
        log("measuring what each machine carries, for dilation: auto")
    pending = {name: handles[name].start_measuring_capacity(bps) for name, bps in demands.items()}
    loads = {}
    for name, each in pending.items():
        with naming(name):
            loads[name] = _load(
                demands[name], int(each.result()), handles[name].call("facts"), _hosts(placements, name)
            )
    real_time = any(point.real_time for point in points)
    decided = RackDilation(derived_factor(loads, real_time=real_time), loads)
    if decided.tightest is not None:
        log(_reason(decided, decided.tightest))
    return decided


def derived_factor(loads: Mapping[str, MachineLoad], *, real_time: bool) -> float:
    """Return the smallest factor with which every machine carries its part, 1 without any. Raise CapacityError."""
    return max(
        (
            choose_dilation(load.demand_bps, load.capacity_bps, AUTO, real_time=real_time, carrier=f"machine {name}")
            for name, load in loads.items()
        ),
        default=1.0,
    )


def machine_demands_bps(
    topology: Topology, demand: NetworkDemand, machine_of: Mapping[str, str], gateways: Mapping[str, str]
) -> dict[str, int]:
    """Return what each machine has to carry when all node pairs of ``demand`` send at once, in both directions.

    That is what its hosts send to other datacenters and receive from them, of each link not more than its trunk, and
    the highest rate of its hosts inside their datacenter. A gateway machine has everything that its datacenter sends,
    once in and once out.
    """
    carried: dict[str, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    forwarded: dict[str, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    for pair in demand.wan_pairs:
        link = topology.host(pair.source).datacenter, topology.host(pair.destination).datacenter
        for host in (pair.source, pair.destination):
            carried[machine_of[host]][link] += pair.rate_bps or 0
        if link[0] in gateways:
            forwarded[gateways[link[0]]][link] += pair.rate_bps or 0
    inside: dict[str, int] = defaultdict(int)
    for pair in demand.intra_pairs:
        for host in (pair.source, pair.destination):
            inside[machine_of[host]] = max(inside[machine_of[host]], pair.rate_bps or 0)

    def of_links(rates_bps: Mapping[tuple[str, str], int]) -> int:
        trunks = {link: topology.conditions(*link).rate_bps for link in rates_bps}
        return sum(min(bps, bps if (trunk := trunks[link]) is None else trunk) for link, bps in rates_bps.items())

    machines = dict.fromkeys([*machine_of.values(), *gateways.values()])
    return {name: of_links(carried[name]) + _DIRECTIONS * of_links(forwarded[name]) + inside[name] for name in machines}


def _demands_bps(placements: Collection[PointPlacement]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for placed in placements:
        for demand in placed.point.demands:
            own = machine_demands_bps(placed.point.topology, demand, placed.machine_of, placed.gateways)
            for name, bps in own.items():
                found[name] = max(found[name], bps)
    return found


def _load(demand_bps: int, measured_bps: int, facts: MachineFacts, hosts: int) -> MachineLoad:
    speed_bps = None if facts.card is None else facts.card.speed_bps
    capacity_bps = measured_bps if speed_bps is None else min(measured_bps, _DIRECTIONS * speed_bps)
    return MachineLoad(demand_bps, capacity_bps, facts.cores, hosts)


def _hosts(placements: Collection[PointPlacement], machine: str) -> int:
    return max(list(placed.machine_of.values()).count(machine) for placed in placements)


def _reason(decided: RackDilation, tightest: str) -> str:
    load = decided.machines[tightest]
    return (
        f"dilation {decided.factor:g}: {tightest} has least to spare of all machines, with "
        f"{rate_text(load.demand_bps)} to carry of {rate_text(load.capacity_bps)}, and "
        f"{count_text(load.cores, 'core')} for {count_text(load.hosts, 'host')}"
    )
