"""Create and read the devices through which a machine's gateway reaches other machines.

A device is created from the machine's own namespace, so that it rides on the card there, but directly in the gateway's:
it never appears beside the card, and it ends with the gateway. Nothing of the card is changed: qdiscs, routes and
addresses belong to the new device. Nothing is learned from packets either. Each host that another machine carries has a
route and a permanent neighbour entry, and each other machine has a forwarding entry with its card's address.
"""

import errno
import os
import time
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from wanbed.testbed.kernel.gateway_programming import NEIGHBOUR_PERMANENT, link_index
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.kernel.namespace import opened
from wanbed.testbed.rack.machine_plan import VXLAN, MachineLink, MachinePlan
from wanbed.testbed.substrate.substrate import SubstrateError

VXLAN_PORT = 14789
"""The UDP port at which machines receive. It is not VXLAN's registered one, which other overlays of the machine use."""

_REMOVAL_S = 5.0
"""The time in which the kernel removes the devices of a run that has just ended, whose numbers it may still hold."""


@dataclass(frozen=True)
class OverlayDevice:
    """A device as the kernel has it. ``vxlan`` has its number, local address, port and whether it learns.

    ``neighbours`` are the MAC address behind each host's address, ``cards`` a machine's address behind each of these,
    ``routes`` the destinations. ``card_index`` is the interface that the device rides on.
    """

    kind: str
    mac: str
    mtu_bytes: int
    card_index: int
    vxlan: tuple[int, str, int, bool]
    neighbours: frozenset[tuple[str, str]]
    cards: frozenset[tuple[str, str]]
    routes: frozenset[str]


def make_link(own: Any, gateway: Any, namespace: str, plan: MachinePlan, link: MachineLink) -> None:
    """Create one device and all its entries. ``own`` and ``gateway`` are netlink sockets in both namespaces.

    In ``own`` is what the devices ride on: the card, or the tunnel if there is one.

    Raise MissingError if the kernel has no VXLAN, SubstrateError if it refuses this one.
    """
    card = card_index(own, plan)
    deadline_s = time.monotonic() + _REMOVAL_S
    while not _added(own, namespace, plan, link, card):
        if time.monotonic() > deadline_s:
            raise SubstrateError(
                f"machine {plan.machine}: VXLAN number {link.vni} at UDP port {VXLAN_PORT} is in use, perhaps by "
                "another run: end that one"
            )
        time.sleep(_REMOVAL_S / 100)
    index = link_index(gateway, link.interface)
    gateway.link("set", index=index, state="up")
    for far in link.far:
        gateway.fdb("append", ifindex=index, lladdr=far.mac, dst=far.carrying_address)
        for address in far.host_addresses:
            gateway.neigh("add", dst=address, lladdr=far.mac, ifindex=index, state=NEIGHBOUR_PERMANENT)
            gateway.route("add", dst=f"{address}/32", oif=index, prefsrc=plan.gateway.address)


def _added(own: Any, namespace: str, plan: MachinePlan, link: MachineLink, card: int) -> bool:
    """Create the device itself. Return False if another one has its number."""
    with opened(namespace) as gateway_namespace:
        try:
            own.link(
                "add",
                ifname=link.interface,
                kind=VXLAN,
                address=link.mac,
                mtu=plan.mtu_bytes,
                net_ns_fd=gateway_namespace,
                vxlan_id=link.vni,
                vxlan_link=card,
                vxlan_local=plan.carrying_address,
                vxlan_port=VXLAN_PORT,
                vxlan_learning=0,
            )
        except NetlinkError as fault:
            if fault.code == errno.EEXIST:
                return False
            raise _refusal(fault, plan) from fault
    return True


def card_index(own: Any, plan: MachinePlan) -> int:
    """Return the index of the machine's card or tunnel. Raise SubstrateError if it has no interface of that name."""
    try:
        return link_index(own, plan.carrying_interface)
    except LookupError:
        raise SubstrateError(f"machine {plan.machine}: it has no interface {plan.carrying_interface!r}") from None


def _refusal(fault: NetlinkError, plan: MachinePlan) -> Exception:
    where = f"machine {plan.machine}"
    if fault.code == errno.EOPNOTSUPP:
        return MissingError(f"{where}: the kernel {os.uname().release} has no {VXLAN} devices: modprobe {VXLAN}")
    reason = os.strerror(fault.code) if fault.code else str(fault)
    return SubstrateError(f"{where}: no {VXLAN} device on {plan.carrying_interface}: {reason}")


def planned_state(plan: MachinePlan, link: MachineLink, card: int) -> OverlayDevice:
    """Return the state that the kernel must have after ``make_link``."""
    hosts = [(address, far.mac) for far in link.far for address in far.host_addresses]
    return OverlayDevice(
        kind=VXLAN,
        mac=link.mac,
        mtu_bytes=plan.mtu_bytes,
        card_index=card,
        vxlan=(link.vni, plan.carrying_address, VXLAN_PORT, False),
        neighbours=frozenset(hosts),
        cards=frozenset((far.mac, far.carrying_address) for far in link.far),
        routes=frozenset(address for address, _ in hosts),
    )


def read_state(gateway: Any, interface: str) -> OverlayDevice:
    """Read a VXLAN device from the kernel. Raise LookupError if there is none of that name."""
    index = link_index(gateway, interface)
    (message,) = gateway.get_links(index)
    info = message.get_attr("IFLA_LINKINFO")
    options = info.get_attr("IFLA_INFO_DATA")
    return OverlayDevice(
        kind=info.get_attr("IFLA_INFO_KIND"),
        mac=message.get_attr("IFLA_ADDRESS"),
        mtu_bytes=message.get_attr("IFLA_MTU"),
        card_index=options.get_attr("IFLA_VXLAN_LINK"),
        vxlan=(
            options.get_attr("IFLA_VXLAN_ID"),
            options.get_attr("IFLA_VXLAN_LOCAL"),
            options.get_attr("IFLA_VXLAN_PORT"),
            bool(options.get_attr("IFLA_VXLAN_LEARNING")),
        ),
        neighbours=frozenset(
            (entry.get_attr("NDA_DST"), entry.get_attr("NDA_LLADDR"))
            for entry in gateway.get_neighbours(ifindex=index, state=NEIGHBOUR_PERMANENT)
        ),
        cards=frozenset(
            (entry.get_attr("NDA_LLADDR"), entry.get_attr("NDA_DST")) for entry in gateway.fdb("dump", ifindex=index)
        ),
        routes=frozenset(
            entry.get_attr("RTA_DST") for entry in gateway.get_routes(oif=index) if entry["dst_len"] == 32
        ),
    )
