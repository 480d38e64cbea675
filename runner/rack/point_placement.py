"""Decide where the hosts of a sweep point are, and which machines a run takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runner.rack.host_placement import Node, gateway_machines, gpus_wanted, place_hosts
from runner.rack.rack_gpus import gpu_sharing
from runner.resolve.experiment import SweepPoint


@dataclass(frozen=True)
class PointPlacement:
    """Where the hosts of a sweep point are. ``sharing`` is None if nothing computes on GPUs.

    ``gateways`` are the gateway machines of datacenters that have one.
    """

    point: SweepPoint
    machine_of: Mapping[str, str]
    sharing: int | None
    gateways: Mapping[str, str] = field(default_factory=dict)

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that carry hosts or are gateways."""
        return tuple(dict.fromkeys([*self.machine_of.values(), *self.gateways.values()]))

    def gpus(self, machine: str) -> int:
        """Return how many real GPUs the hosts on a machine take."""
        hosts = [host for host in self.point.topology.hosts if self.machine_of[host.name] == machine]
        return gpus_wanted(hosts, self.sharing)


def place_point(point: SweepPoint, nodes: Sequence[Node], hosts_per_machine: int) -> PointPlacement:
    """Return where the hosts of a sweep point are. Raise InputError if they do not fit, or of unclear gateways."""
    sharing = gpu_sharing(point, nodes)
    machine_of = place_hosts(point.topology, nodes, hosts_per_machine, sharing)
    return PointPlacement(point, machine_of, sharing, gateway_machines(point.topology, nodes))


def used_nodes(nodes: Sequence[Node], placements: Iterable[PointPlacement]) -> tuple[list[Node], dict[str, int]]:
    """Return the machines that any of the placements uses, and how many GPUs a run takes of each."""
    placements = list(placements)
    used = [node for node in nodes if any(node.name in each.machines for each in placements)]
    return used, {node.name: max(each.gpus(node.name) for each in placements) for node in used}
