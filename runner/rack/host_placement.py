"""Decide which machine of a rack carries which emulated hosts. Pure: the same nodes in any order give the same result.

A machine carries hosts of one datacenter only, so that what two datacenters send to each other passes a card.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wanbed.ground.nearest_name import nearest_name
from wanbed.ground.shown_text import one_line, shortened
from wanbed.ground.strict_model import InputError
from wanbed.results.text import count_text, list_text
from wanbed.testbed.network.topology import Datacenter, Host, Topology

DATACENTER_LABEL = "wanbed.datacenter"
"""The label of a Ray node that names the datacenter whose hosts its machine carries."""

GATEWAY_LABEL = "wanbed.gateway"
"""The label of a Ray node that names the datacenter whose trunks go through its machine, which carries no hosts."""


@dataclass(frozen=True)
class Node:
    """A machine of the rack as Ray knows it. ``cpus`` and ``gpus`` are what Ray accounts for there.

    ``port`` is one at which Ray listens there, 0 if it is not known.
    """

    name: str
    node_id: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1
    gpus: float = 0
    port: int = 0

    @property
    def datacenter(self) -> str | None:
        """The datacenter that the machine is labelled for, None if it may carry any."""
        return self.labels.get(DATACENTER_LABEL) or None

    @property
    def gateway_of(self) -> str | None:
        """The datacenter whose gateway machine this is, None if it is none."""
        return self.labels.get(GATEWAY_LABEL) or None

    @property
    def carries_hosts(self) -> bool:
        """Whether a run may use the machine: one that was started with ``--num-cpus=0`` only drives."""
        return self.cpus > 0

    @property
    def has_room(self) -> bool:
        """Whether hosts may be placed on the machine."""
        return self.carries_hosts and self.gateway_of is None


def in_order(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes by name, with numbers in names by their value, so that ``rack10`` follows ``rack9``."""
    return sorted(nodes, key=lambda node: (_natural(node.name), _natural(node.address), node.node_id))


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


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
