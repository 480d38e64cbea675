"""Decide which machine of a rack carries which hosts of a sweep point, and which GPUs they compute on.

A machine carries hosts of one datacenter only, so that what two datacenters send to each other passes a card. The same
nodes in any order give the same placement.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Protocol

from wanbed.ground.errors import InputError, MissingError, nearest_name, one_line, shortened
from wanbed.results.text import count_text, list_text
from wanbed.runner.emulation.gpu_provisioning import device_memory, resolved_device
from wanbed.runner.rack_runs.cluster import DATACENTER_LABEL, GATEWAY_LABEL, Node, in_order
from wanbed.runner.resolve.device_memory import DeviceMemory, check_device_memory
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment, assign_gpus
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.network.topology import Datacenter, Host, Topology
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


def place_hosts(
    topology: Topology, nodes: Sequence[Node], hosts_per_machine: int = 1, gpu_sharing: int | None = None
) -> dict[str, str]:
    """Return the name of each host's machine, at most ``hosts_per_machine`` hosts on each.

    Machines labelled for a datacenter carry its hosts before those without label, which go to the datacenters in
    order. With ``gpu_sharing`` a host takes as many GPUs as it has, up to that many emulated ones on each; None if
    nothing computes on GPUs. Raise InputError with the arithmetic if the hosts do not fit.
    """
    machine_of, short = _placed(topology, nodes, hosts_per_machine, gpu_sharing)
    if short is not None:
        raise InputError(_refusal(topology, short, nodes, hosts_per_machine, gpu_sharing))
    return {host.name: machine_of[host.name] for host in topology.hosts}


def _placed(
    topology: Topology, nodes: Sequence[Node], hosts_per_machine: int, gpu_sharing: int | None
) -> tuple[dict[str, str], Datacenter | None]:
    """Return the machines of hosts, and the first datacenter whose hosts do not fit, None if all do."""
    carrying = [node for node in in_order(nodes) if node.has_room]
    taken: set[str] = set()
    machine_of: dict[str, str] = {}
    # A machine with many GPUs can take the place of one with few, not the other way round.
    for datacenter in sorted(topology.datacenters, key=lambda each: -_most_gpus(each, gpu_sharing)):
        free = [node for node in carrying if node.node_id not in taken and node.datacenter in {None, datacenter.name}]
        waiting = datacenter.hosts
        for node in sorted(free, key=lambda each: (each.datacenter is None, 0 if gpu_sharing is None else each.gpus)):
            if room := _room(node, waiting, hosts_per_machine, gpu_sharing):
                machine_of.update({host.name: node.name for host in waiting[:room]})
                taken.add(node.node_id)
                waiting = waiting[room:]
        if waiting:
            return machine_of, datacenter
    return machine_of, None


def gateway_machines(topology: Topology, nodes: Sequence[Node]) -> dict[str, str]:
    """Return the name of the gateway machine of each datacenter that has one.

    Raise InputError if a datacenter has several.
    """
    found: dict[str, str] = {}
    for datacenter in topology.datacenters:
        named = [node.name for node in in_order(nodes) if node.carries_hosts and node.gateway_of == datacenter.name]
        if len(named) > 1:
            raise InputError(
                f"{list_text(named)} are labelled {GATEWAY_LABEL}={datacenter.name}, and a trunk goes through one "
                "machine: leave one of the labels"
            )
        if named:
            found[datacenter.name] = named[0]
    return found


def gpus_wanted(hosts: Sequence[Host], gpu_sharing: int | None) -> int:
    """Return how many real GPUs hosts take of their machine, 0 if nothing computes on GPUs."""
    return 0 if gpu_sharing is None else -(-sum(host.gpus + host.serving_gpus for host in hosts) // gpu_sharing)


def unknown_labels(topology: Topology, nodes: Sequence[Node]) -> list[str]:
    """Return a line for each machine that is labelled for a datacenter which the topology does not have."""
    names = [each.name for each in topology.datacenters]
    lines = []
    for node in in_order(nodes):
        for label in (DATACENTER_LABEL, GATEWAY_LABEL):
            named = node.labels.get(label)
            if node.carries_hosts and named and named not in names:
                near = nearest_name(named, names)
                meant = f", did you mean {near}?" if near else f": there are {list_text(names)}"
                shown = shortened(one_line(named))
                lines.append(f"{node.name} is labelled {label}={shown}, no datacenter here{meant}")
    return lines


def _room(node: Node, waiting: Sequence[Host], hosts_per_machine: int, gpu_sharing: int | None) -> int:
    """Return how many of the hosts, from the first on, fit on the machine."""
    for room in range(min(hosts_per_machine, len(waiting)), 0, -1):
        if gpus_wanted(waiting[:room], gpu_sharing) <= node.gpus:
            return room
    return 0


def _most_gpus(datacenter: Datacenter, gpu_sharing: int | None) -> int:
    return max((gpus_wanted([host], gpu_sharing) for host in datacenter.hosts), default=0)


def _refusal(
    topology: Topology, short: Datacenter, nodes: Sequence[Node], hosts_per_machine: int, gpu_sharing: int | None
) -> str:
    carrying = [node for node in nodes if node.has_room]
    wanted = sum(-(-len(each.hosts) // hosts_per_machine) for each in topology.datacenters)
    held = [node for node in carrying if node.datacenter not in {None, short.name}]
    facts = [
        f"{count_text(len(topology.hosts), 'host')} in {count_text(len(topology.datacenters), 'datacenter')}, "
        f"{hosts_per_machine} a machine, want {count_text(wanted, 'machine')}, and the rack has {len(carrying)}"
    ]
    if held:
        facts.append(f"{len(held)} of them labelled for other datacenters")
    facts += unknown_labels(topology, nodes)
    if each_wants := _most_gpus(short, gpu_sharing):
        there = list_text([f"{node.gpus:g}" for node in in_order(carrying)]) if carrying else "none"
        facts.append(f"a host of {short.name} wants {count_text(each_wants, 'GPU')}, and Ray counts {there} on them")
    if gateways := [node.name for node in in_order(nodes) if node.carries_hosts and not node.has_room]:
        facts.append(f"{list_text(gateways)} more only {'forwards' if len(gateways) == 1 else 'forward'}, as a gateway")
    if driving := sum(not node.carries_hosts for node in nodes):
        facts.append(f"{count_text(driving, 'machine')} more without CPUs in Ray only drive")
    largest = max(len(each.hosts) for each in topology.datacenters)
    enough = next(
        (count for count in range(1, largest + 1) if _placed(topology, nodes, count, gpu_sharing)[1] is None), None
    )
    remedy = "" if enough is None else f", or give --hosts-per-machine {enough}"
    return f"no room for the hosts of {short.name}: {'; '.join(facts)}: add machines{remedy}"


def gpu_sharing(point: SweepPoint, nodes: Sequence[Node]) -> int | None:
    """Return how many emulated GPUs of a sweep point may share a real one, None if nothing computes on GPUs.

    Nothing does if neither the back end uses a device nor there is a program, if the device is cpu, or if it is auto
    and Ray counts no GPU on the machines that may carry hosts. Raise MissingError if it is cuda and there is none.
    """
    compute, programs = point.spec.compute, any(isinstance(variant, ProgramVariant) for variant in point.variants)
    if not (compute.backend.on_device or programs) or compute.device == "cpu":
        return None
    if any(node.gpus for node in nodes if node.has_room):
        return compute.sharing or 1
    if compute.device == "cuda":
        raise MissingError(
            "compute.device: cuda, and Ray counts no GPU on the rack's machines: give `ray start` --num-gpus, or "
            "device: cpu"
        )
    return None


def assigned_gpus(
    topology: Topology, machine_of: Mapping[str, str], visible: Mapping[str, Sequence[Gpu]], sharing: int
) -> GpuAssignment:
    """Return the real GPUs of every host, each on the host's machine; ``visible`` are those that Ray gave to the run.

    Raise MissingError for a GPU without known UUID, InputError if a machine has too few.
    """
    uuids: dict[str, tuple[str, ...]] = {}
    parents: dict[str, str] = {}
    for machine in dict.fromkeys(machine_of.values()):
        gpus = visible[machine]
        known = [gpu.uuid for gpu in gpus if gpu.uuid is not None]
        if len(known) < len(gpus):
            raise MissingError(f"machine {machine}: hosts get their GPUs by UUID: pip install 'wanbed[gpu]' there")
        own = {gpu.uuid: gpu.parent for gpu in gpus if gpu.uuid is not None and gpu.parent is not None}
        assigned = assign_gpus(_only(topology, machine_of, machine), known, sharing=sharing, parents=own)
        uuids.update(assigned.uuids)
        parents.update(own)
    return GpuAssignment({host.name: uuids[host.name] for host in topology.hosts}, parents)


def _only(topology: Topology, machine_of: Mapping[str, str], machine: str) -> Topology:
    """Return the topology without the hosts of other machines."""
    datacenters = (
        replace(each, hosts=tuple(host for host in each.hosts if machine_of[host.name] == machine))
        for each in topology.datacenters
    )
    return replace(topology, datacenters=tuple(datacenters))
