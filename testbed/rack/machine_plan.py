"""Plan the part of an emulated network that each machine of a rack carries, as plain data.

A machine carries hosts of one datacenter, and a gateway for them: the datacenter's gateway, but with ports to these
hosts only. Every machine of the datacenter has such a gateway, with the same address, as if they were one. Between two
machines packets travel over their cards, in an encapsulation:

- ``vxlan``: Ethernet frames in UDP datagrams. Any cards that reach each other by IPv4 will do.
- ``wireguard``: as ``vxlan``, inside an encrypted tunnel between the machines' gateways.

A gateway has one device for the machines of each other datacenter, with the qdiscs of a WAN port, and one for the other
machines of its own, without qdiscs: the port to the receiving host delays and serialises.

Machines do not know of each other's traffic. So a trunk whose node pairs start on several machines and can together
exceed it is divided: each machine gets an equal part in every state of the trunk, also while the others send nothing.
Such a ``TrunkSplit`` is recorded, because a trunk in one place would let one machine have what the others leave.

A datacenter may have a gateway machine instead: whatever its machines send to other datacenters goes to that machine
first, over the device for the own datacenter, and its WAN ports hold the whole trunks. What comes from other
datacenters goes to the receiving machine directly.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from ipaddress import IPv4Address
from types import MappingProxyType

from wanbed.ground.dataclass_json import from_document
from wanbed.ground.errors import InputError
from wanbed.ground.units import format_size
from wanbed.testbed.network.addressing import host_address, machine_link_mac, tunnel_address
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES, MTU_BYTES
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import Gateway, GatewayPlan, HostPort, PortState, SharedRate, WanPort
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.pair_rates import pair_rates
from wanbed.testbed.network.shared_rate import Timers, can_bind, shared_rate
from wanbed.testbed.network.topology import Datacenter, Topology


@dataclass(frozen=True)
class TrunkSplit:
    """A trunk that is divided among ``machines`` machines, of which each has ``rate_bps``.

    Of a trunk that changes, that is the part in its first conditions under which node pairs can exceed it.
    """

    source: str
    destination: str
    machines: int
    rate_bps: int


@dataclass(frozen=True)
class _TrunkDivision:
    """The trunks from ``source``, whose hosts are on so many ``machines``. ``shared`` plans a trunk of a rate."""

    topology: Topology
    source: str
    machines: int
    timers: Timers
    shared: Callable[[int], SharedRate]

    def splits(self, ports: Iterable[WanPort]) -> tuple[TrunkSplit, ...]:
        """Return how each trunk is divided, but for those that never bind, and of a single machine."""
        return tuple(
            TrunkSplit(self.source, port.peer, self.machines, parts_bps[0])
            for port in ports
            if self.machines > 1 and (parts_bps := [each for _, _, each in self._states(port) if each is not None])
        )

    def own_part(self, port: WanPort, hosts: int) -> WanPort:
        """Return the port with the part of one machine that carries ``hosts`` of the sending hosts."""
        if self.machines == 1:
            return port
        pairs = hosts * len(port.destinations)
        ever = self._states(port)
        # A node pair cannot be above its machine's part of a trunk that can bind.
        own_bps = [min(filter(None, (pair_bps, part_bps)), default=None) for _, pair_bps, part_bps in ever]
        rates = pair_rates(own_bps, self.timers, self.shared)
        states = tuple(
            PortState(
                replace(state.netem, rate_bytes_per_s=rates.leaf_bytes_per_s),
                self.shared(part_bps) if part_bps and can_bind(part_bps, [pair_bps] * pairs) else None,
                above,
            )
            for (state, pair_bps, part_bps), above in zip(ever, rates.above, strict=True)
        )
        course = None if port.course is None else replace(port.course, states=states)
        return replace(port.holding(states[0]), course=course)

    def _states(self, port: WanPort) -> list[tuple[PortState, int | None, int | None]]:
        """Return each state that the port ever has, the first first, with the rate of a node pair and that of a part.

        A part is one machine's of the trunk. Its rate is None while the trunk does not bind.
        """
        states = (PortState(port.netem, port.trunk, port.pair),) if port.course is None else port.course.states
        ever = zip(states, self.topology.ever(self.source, port.peer), strict=True)
        return [(state, each.pair_rate_bps, self._part_bps(state, each)) for state, each in ever]

    def _part_bps(self, state: PortState, conditions: LinkConditions) -> int | None:
        if state.trunk is None or conditions.rate_bps is None:
            return None
        return max(1, conditions.rate_bps // self.machines)


VXLAN, WIREGUARD = "vxlan", "wireguard"
WIREGUARD_HEADER_BYTES = 60
"""IPv4 20, UDP 8, WireGuard's own header 16 and its authentication tag 16 (the protocol's paper, section 5.4.6)."""

HEADER_BYTES = {VXLAN: 50, WIREGUARD: 50 + WIREGUARD_HEADER_BYTES}
"""The bytes that each kind of underlay adds to an emulated packet on the card's line, as an IP packet.

WireGuard also fills packets that are smaller than the MTU up to a multiple of 16 bytes.
"""

TUNNEL_INTERFACE = "wanbed-wg"
"""The name of an encrypted tunnel's device, beside the card for a moment and then in the gateway's namespace."""

_OWN_DATACENTER_INTERFACE = "lan"
"""The name, in the gateway's namespace, of the device for the other machines of the same datacenter."""

_VNI_BITS, _SLOT_VNI_BITS = 24, 16
_MOST_DEVICES = 2**16


@dataclass(frozen=True)
class Underlay:
    """The card of one machine: its IPv4 address, its interface and its MTU, and the ``kind`` of what rides on it.

    ``public_key`` is that of the machine's end of a tunnel, empty without one.
    """

    address: str
    interface: str
    mtu: int
    kind: str = VXLAN
    public_key: str = ""


@dataclass(frozen=True)
class FarMachine:
    """Another machine, as a device reaches it: its card's address, the MAC address of its device, and its hosts'.

    ``tunnel_address`` and ``public_key`` are those of its end of a tunnel, empty without one.
    """

    machine: str
    address: str
    mac: str
    host_addresses: tuple[str, ...]
    tunnel_address: str = ""
    public_key: str = ""

    @property
    def carrying_address(self) -> str:
        """The address that VXLAN sends to: the machine's end of the tunnel, without one its card."""
        return self.tunnel_address or self.address


@dataclass(frozen=True)
class MachineLink:
    """The device for all other machines that carry hosts of ``datacenter``. ``vni`` is the VXLAN's number."""

    datacenter: str
    interface: str
    mac: str
    vni: int
    far: tuple[FarMachine, ...]


@dataclass(frozen=True)
class MachinePlan:
    """Everything that one machine needs to carry its ``hosts``.

    ``gateway`` has the ports to all hosts of the datacenter, so that classes are numbered as in the whole datacenter,
    and this machine's parts of the trunks; it has no WAN ports if the datacenter has another gateway machine.
    ``senders`` are the hosts whose packets leave by its WAN ports. ``mtu_bytes`` is that of every emulated interface.
    ``tunnel_address`` is that of its end of a tunnel, empty without one.
    """

    machine: str
    underlay: Underlay
    mtu_bytes: int
    hosts: tuple[str, ...]
    senders: tuple[str, ...]
    gateway: Gateway
    links: tuple[MachineLink, ...]
    trunk_splits: tuple[TrunkSplit, ...]
    exact_packets: bool
    tunnel_address: str = ""

    @property
    def carrying_address(self) -> str:
        """The address that VXLAN sends from: the machine's end of the tunnel, without one its card."""
        return self.tunnel_address or self.underlay.address

    @property
    def carrying_interface(self) -> str:
        """The device below those to other machines: the tunnel, without one the card."""
        return TUNNEL_INTERFACE if self.tunnel_address else self.underlay.interface

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        """The gateway's ports to the hosts on this machine."""
        return tuple(port for port in self.gateway.host_ports if port.host in self.hosts)

    def with_less_wan_delay(self, trim_ns: int) -> "MachinePlan":
        """Return the same plan with every WAN port's delay reduced by ``trim_ns``, but not below zero."""
        return replace(self, gateway=self.alone().with_less_wan_delay(trim_ns).gateways[0])

    def without_impairments(self) -> "MachinePlan":
        """Return the same plan without impairments on the WAN."""
        return replace(self, gateway=self.alone().without_impairments().gateways[0])

    def alone(self) -> GatewayPlan:
        """Return the plan of its gateway alone."""
        return GatewayPlan((self.gateway,), self.exact_packets)

    def to_json(self) -> str:
        """Return the plan as one JSON document."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "MachinePlan":
        """Read what ``to_json`` wrote."""
        return from_document(MachinePlan, json.loads(text))


def first_vni(slot: int) -> int:
    """Return the first VXLAN number for a testbed in address slot ``slot``. No two slots share numbers."""
    return slot << _SLOT_VNI_BITS


def plan_machines(
    topology: Topology,
    slot: int,
    vni: int,
    machine_of: Mapping[str, str],
    underlays: Mapping[str, Underlay],
    *,
    tag: int = 0,
    gateways: Mapping[str, str] = MappingProxyType({}),
    timers: Timers = Timers.KERNEL,
) -> dict[str, MachinePlan]:
    """Plan every machine that carries hosts: ``machine_of`` has the machine of each host, ``underlays`` their cards.

    ``vni`` is the first VXLAN number to use, ``tag`` a number of 24 bits that tells this rack's MAC addresses from
    those of others. ``gateways`` are the gateway machines of datacenters that have one; it may carry hosts of that
    datacenter, or none. Raise InputError for machines that cannot carry this network.
    """
    rack = _Rack(topology, slot, vni, machine_of, underlays, tag=tag, gateways=gateways, timers=timers)
    return {
        machine: rack.plan(machine, datacenter)
        for datacenter in topology.datacenters
        for machine in rack.machines[datacenter.name]
    }


class _Rack:
    """Plan the machines of one testbed; holds what they have in common."""

    def __init__(
        self,
        topology: Topology,
        slot: int,
        vni: int,
        machine_of: Mapping[str, str],
        underlays: Mapping[str, Underlay],
        *,
        tag: int,
        gateways: Mapping[str, str],
        timers: Timers,
    ) -> None:
        self._topology, self._slot, self._vni, self._timers = topology, slot, vni, timers
        self._machine_of, self._underlays, self._tag, self._gateway_machines = machine_of, underlays, tag, gateways
        self.machines = {
            each.name: tuple(
                dict.fromkeys(
                    [*(machine_of[host.name] for host in each.hosts), *filter(None, [gateways.get(each.name)])]
                )
            )
            for each in topology.datacenters
        }
        used = [machine for machines in self.machines.values() for machine in machines]
        self._check(used)
        self._number = {machine: number for number, machine in enumerate(used)}
        self._mtu_bytes = self._fitting_mtu_bytes(used)
        self._frame_bytes = self._mtu_bytes + ETHERNET_HEADER_BYTES
        plan = plan_gateways(topology, slot, timers, self._mtu_bytes)
        self._exact_packets = plan.exact_packets
        self._gateways = {gateway.datacenter: gateway for gateway in plan.gateways}

    def _check(self, used: list[str]) -> None:
        for machine in used:
            owners = [name for name, machines in self.machines.items() if machine in machines]
            if len(owners) > 1:
                raise InputError(
                    f"machine {machine}: carries hosts of {' and '.join(owners)}, but a machine stands in one "
                    "datacenter: place the hosts of each datacenter on machines of their own"
                )
            _check_underlay(machine, self._underlays[machine])
        kinds = sorted({self._underlays[machine].kind for machine in used})
        if len(kinds) > 1:
            raise InputError(f"underlay: {' and '.join(kinds)} on one rack do not reach each other: take one of them")
        if len(used) * len(self._topology.datacenters) > _MOST_DEVICES:
            raise InputError(
                f"hosts: {len(used)} machines in {len(self._topology.datacenters)} datacenters want more than "
                f"{_MOST_DEVICES} devices between them: put several hosts on a machine"
            )
        if self._vni + len(self._topology.datacenters) ** 2 > 2**_VNI_BITS:
            raise InputError(f"underlay: VXLAN numbers from {self._vni} exceed {_VNI_BITS} bits: take a smaller one")

    def _fitting_mtu_bytes(self, used: list[str]) -> int:
        """Return the topology's MTU; less, if it is the usual one and the overlay leaves less of a card's."""
        wanted_bytes = fitting_bytes = self._topology.mtu_bytes
        for machine in used:
            underlay = self._underlays[machine]
            left_bytes = underlay.mtu - HEADER_BYTES[underlay.kind]
            if left_bytes < wanted_bytes != MTU_BYTES:
                raise InputError(
                    f"topology.mtu: {format_size(wanted_bytes)}, where {underlay.kind} leaves {left_bytes}B of the "
                    f"MTU of machine {machine}: give no more, or raise that of its {underlay.interface}"
                )
            fitting_bytes = min(fitting_bytes, left_bytes)
        return fitting_bytes

    def plan(self, machine: str, datacenter: Datacenter) -> MachinePlan:
        """Plan one machine of a datacenter."""
        hosts = tuple(host.name for host in datacenter.hosts if self._machine_of[host.name] == machine)
        gateway, through = self._gateways[datacenter.name], self._gateway_machines.get(datacenter.name)
        splits: tuple[TrunkSplit, ...] = ()
        senders, ports = hosts, gateway.wan_ports
        if through is None:
            # Offloads of virtual time, whose packets the third argument bounds, do not cross machines.
            own_trunk = partial(shared_rate, timers=self._timers, super_packet_bytes=0, frame_bytes=self._frame_bytes)
            division = _TrunkDivision(
                self._topology, datacenter.name, len(self.machines[datacenter.name]), self._timers, own_trunk
            )
            splits = division.splits(gateway.wan_ports)
            ports = tuple(division.own_part(port, len(hosts)) for port in gateway.wan_ports)
        elif through == machine:
            senders = tuple(host.name for host in datacenter.hosts)
        else:
            senders, ports = (), ()
        return MachinePlan(
            machine=machine,
            underlay=self._underlays[machine],
            mtu_bytes=self._mtu_bytes,
            hosts=hosts,
            senders=senders,
            gateway=replace(gateway, wan_ports=ports),
            links=tuple(
                self._link(machine, datacenter, peer)
                for peer in self._topology.datacenters
                if self.machines[peer.name] != (machine,)
            ),
            trunk_splits=splits,
            exact_packets=self._exact_packets,
            tunnel_address=self._tunnel_address(machine),
        )

    def _link(self, machine: str, datacenter: Datacenter, peer: Datacenter) -> MachineLink:
        low, high = sorted((datacenter.index, peer.index))
        return MachineLink(
            datacenter=peer.name,
            interface=_OWN_DATACENTER_INTERFACE if peer == datacenter else f"wan{peer.index}",
            mac=self._mac(machine, peer),
            vni=self._vni + low * len(self._topology.datacenters) + high,
            far=tuple(
                FarMachine(
                    other,
                    self._underlays[other].address,
                    self._mac(other, datacenter),
                    tuple(self._reached(machine, datacenter, other, peer)),
                    self._tunnel_address(other),
                    self._underlays[other].public_key,
                )
                for other in self.machines[peer.name]
                if other != machine
            ),
        )

    def _tunnel_address(self, machine: str) -> str:
        encrypted = self._underlays[machine].kind == WIREGUARD
        return tunnel_address(self._number[machine]) if encrypted else ""

    def _mac(self, machine: str, peer: Datacenter) -> str:
        """Return the MAC address of a machine's device for the machines of ``peer``."""
        return machine_link_mac(self._tag, self._number[machine] * len(self._topology.datacenters) + peer.index)

    def _reached(self, machine: str, datacenter: Datacenter, other: str, peer: Datacenter) -> Iterator[str]:
        """Yield the addresses of the hosts to which a machine sends by way of ``other``, a machine of ``peer``."""
        through = self._gateway_machines.get(datacenter.name, machine)
        for each in self._topology.datacenters:
            for host in each.hosts:
                if each == datacenter or through == machine:
                    sends = self._machine_of[host.name] == other
                else:
                    sends = through == other
                if sends:
                    yield host_address(self._slot, each.index, host.index)


def unknown_overlay(kind: str) -> str:
    """Return why there is no overlay of this kind, with the remedy."""
    return f"{kind!r} is not known: give {' or '.join(HEADER_BYTES)}"


def _check_underlay(machine: str, underlay: Underlay) -> None:
    if underlay.kind not in HEADER_BYTES:
        raise InputError(f"machine {machine}: underlay {unknown_overlay(underlay.kind)}")
    try:
        IPv4Address(underlay.address)
    except ValueError:
        raise InputError(
            f"machine {machine}: address {underlay.address!r} of {underlay.interface} is no IPv4 address: "
            "name a card that has one"
        ) from None
