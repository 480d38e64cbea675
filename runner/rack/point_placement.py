"""Decide where the hosts of a sweep point are, which machines a run takes, and which GPUs of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Protocol

from wanbed.runner.emulation.gpu_provisioning import device_memory, resolved_device
from wanbed.runner.rack.host_placement import Node, gateway_machines, gpus_wanted, place_hosts
from wanbed.runner.rack.rack_gpus import assigned_gpus, gpu_sharing
from wanbed.runner.resolve.device_memory import DeviceMemory, check_device_memory
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.rack.machine_handle import MachineHandle


@dataclass(frozen=True)
class PointPlacement:
    """The machines of a sweep point's hosts. ``sharing`` is None if nothing computes on GPUs.

    ``gateways`` are the gateway machines of the datacenters that have one.
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
    flow_hosts = {host for flow in point.background for host in flow.hosts}
    machine_of = with_flow_hosts(
        point.topology,
        place_hosts(without_hosts(point.topology, flow_hosts), nodes, hosts_per_machine, sharing),
    )
    return PointPlacement(point, machine_of, sharing, gateway_machines(point.topology, nodes))


def without_hosts(topology: Topology, left_out: Collection[str]) -> Topology:
    """Return the same network without these hosts."""
    return replace(
        topology,
        datacenters=tuple(
            replace(each, hosts=tuple(host for host in each.hosts if host.name not in left_out))
            for each in topology.datacenters
        ),
    )


def with_flow_hosts(topology: Topology, machine_of: Mapping[str, str]) -> dict[str, str]:
    """Return the machine of every host: those that have none yet, of flows, go to their datacenter's in turns.

    They compute nothing, so that they take no place of a host that does.
    """
    found = dict(machine_of)
    for datacenter in topology.datacenters:
        turns = cycle(dict.fromkeys(machine_of[host.name] for host in datacenter.hosts if host.name in machine_of))
        found |= {host.name: next(turns) for host in datacenter.hosts if host.name not in machine_of}
    return {host.name: found[host.name] for host in topology.hosts}


def used_nodes(nodes: Sequence[Node], placements: Iterable[PointPlacement]) -> tuple[list[Node], dict[str, int]]:
    """Return the machines that any of the placements uses, and how many GPUs a run takes of each."""
    placements = list(placements)
    used = [node for node in nodes if any(node.name in each.machines for each in placements)]
    return used, {node.name: max(each.gpus(node.name) for each in placements) for node in used}


def carrying_machines(placements: Iterable[PointPlacement]) -> list[str]:
    """Return the machines that carry hosts in any of the placements, each once."""
    return [*dict.fromkeys(machine for each in placements for machine in each.machine_of.values())]


class GpuMachine(MachineHandle, Protocol):
    """A machine of which Ray gives GPUs to the run."""

    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs that Ray has given to the run on this machine."""


def gpus_of(placed: PointPlacement, machines: Mapping[str, GpuMachine]) -> GpuAssignment | None:
    """Return the real GPUs of every host, None if nothing computes on GPUs. Raise what ``assigned_gpus`` raises."""
    if placed.sharing is None:
        return None
    visible = {name: machines[name].gpus() for name in dict.fromkeys(placed.machine_of.values())}
    return assigned_gpus(placed.point.topology, placed.machine_of, visible, placed.sharing)


def check_memory(placed: PointPlacement, machines: Mapping[str, GpuMachine]) -> None:
    """Raise InputError if what torch computes does not fit into the GPUs that its hosts would get.

    A GPU whose memory is not known is not checked.
    """
    gpus = gpus_of(placed, machines)
    if gpus is None or resolved_device(placed.point, gpus) is None:
        return
    memories: dict[str, DeviceMemory] = {}
    for machine in dict.fromkeys(placed.machine_of.values()):
        own = sorted({seat.uuid for seat in gpus.seats() if placed.machine_of[seat.host] == machine})
        for uuid, memory in machines[machine].call("gpu_memories", own).items():
            memories[uuid] = device_memory(uuid, memory, machine)
    check_device_memory(placed.point, gpus.uuid, memories)
