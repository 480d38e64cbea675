"""Choose the dilation of a run over a rack: what each machine has to carry, against what it can.

It is measured through the network that the experiment makes of the machines, with all of them busy. The largest factor
that a machine needs is the run's.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from wanbed.results.text import count_text, rate_text
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.rack.machine_traffic import Carriers
from wanbed.runner.rack.network_capacity import measure_capacities_bps
from wanbed.runner.rack.point_placement import PointPlacement
from wanbed.runner.resolve.connections import NetworkDemand
from wanbed.runner.resolve.dilation import choose_dilation, settled_dilation
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.rack.machine_handle import MachineHandle
from wanbed.testbed.rack.rack_testbed import RackTestbed


class UpOverRack(Protocol):
    """Brings a network up over the machines of a placement, for the duration of a ``with`` block."""

    def __call__(self, placed: PointPlacement, topology: Topology) -> AbstractContextManager[RackTestbed]:
        """Return the network that is up inside the block."""


@dataclass(frozen=True)
class MachineDemand:
    """The largest demand on one machine and its capacity, both in bit/s, its cores, and the number of its hosts."""

    demand_bps: int
    capacity_bps: int
    cores: int
    hosts: int

    @property
    def strain(self) -> float:
        """Return what it has to carry over what it can."""
        return self.demand_bps / self.capacity_bps


@dataclass(frozen=True)
class RackDilation:
    """The factor of a run over a rack. ``machines`` are those that were measured, none where it was not derived."""

    factor: float
    machines: Mapping[str, MachineDemand]

    @property
    def tightest(self) -> str | None:
        """The machine that decides, None if none was measured."""
        return max(
            self.machines,
            key=lambda each: self.machines[each].strain,
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
    placements: Collection[PointPlacement],
    handles: Mapping[str, MachineHandle],
    up: UpOverRack,
    log: Log,
    *,
    shaped: bool,
) -> RackDilation:
    """Return the configured factor, or measure what the machines carry and derive it.

    Nothing is measured if no link in use has a rate, or if the network is not ``shaped``. Raise CapacityError if a
    machine cannot carry what it has to, and what bringing a network up and measuring it raises.
    """
    points = [placed.point for placed in placements]
    configured = points[0].spec.dilation
    if configured != AUTO:
        return RackDilation(choose_dilation(0, 1, configured), {})
    heaviest = heaviest_demands(placements) if shaped else []
    if not heaviest:
        return RackDilation(1.0, {})

    real_time = any(point.real_time for point in points)

    def at(dilation: float) -> RackDilation:
        log(f"measuring what the machines carry when all links are busy, at dilation {dilation:g}, for dilation: auto")
        loads = _measured(heaviest, handles, up, dilation)
        return RackDilation(derived_factor(loads, real_time=real_time), loads)

    decided = settled_dilation(at)
    if decided.tightest is not None:
        log(_reason(decided, decided.tightest))
    return decided


def _measured(
    demands: Iterable[tuple[PointPlacement, NetworkDemand]],
    handles: Mapping[str, MachineHandle],
    up: UpOverRack,
    dilation: float,
) -> dict[str, MachineDemand]:
    loads: dict[str, MachineDemand] = {}
    for placed, demand in demands:
        carriers = carriers_of(placed)
        measured = measure_capacities_bps(demand, carriers, partial(up, placed), dilation)
        for name, (demand_bps, capacity_bps) in measured.items():
            load = MachineDemand(demand_bps, capacity_bps, handles[name].call("facts").cores, carriers.hosts_on(name))
            loads[name] = max(loads.get(name, load), load, key=lambda each: each.strain)
    return loads


def derived_factor(loads: Mapping[str, MachineDemand], *, real_time: bool) -> float:
    """Return the smallest factor with which every machine carries its part, 1 without any. Raise CapacityError."""
    return max(
        (
            choose_dilation(load.demand_bps, load.capacity_bps, AUTO, real_time=real_time, carrier=f"machine {name}")
            for name, load in loads.items()
        ),
        default=1.0,
    )


def heaviest_demands(placements: Iterable[PointPlacement]) -> list[tuple[PointPlacement, NetworkDemand]]:
    """Return the demands of some variants, such that one of them has the heaviest load of each machine.

    There are as few of them as the order of the placements allows: one, where one is the heaviest for all machines.
    """
    every = [(placed, demand) for placed in placements for demand in placed.point.demands]
    by_machine = [carriers_of(placed).demands_bps(demand) for placed, demand in every]
    machines = dict.fromkeys(name for demands in by_machine for name, bps in demands.items() if bps)
    totals = [sum(demands.values()) for demands in by_machine]
    chosen: dict[int, None] = {}
    for name in machines:
        heaviest = max(demands.get(name, 0) for demands in by_machine)
        candidates = [at for at, demands in enumerate(by_machine) if demands.get(name, 0) == heaviest]
        if not chosen.keys() & {*candidates}:
            chosen[max(candidates, key=lambda at: totals[at])] = None
    return [every[at] for at in chosen]


def carriers_of(placed: PointPlacement) -> Carriers:
    """Return which machines carry what of a placement."""
    return Carriers(placed.point.topology, placed.machine_of, placed.gateways)


def _reason(decided: RackDilation, tightest: str) -> str:
    load = decided.machines[tightest]
    return (
        f"dilation {decided.factor:g}: {tightest} has least to spare of all machines, with "
        f"{rate_text(load.demand_bps)} to carry of {rate_text(load.capacity_bps)}, and "
        f"{count_text(load.cores, 'core')} for {count_text(load.hosts, 'host')}"
    )
