"""Program gateways over netlink according to their plan, and verify that the kernel has applied it.

The same code runs on the host's kernel and in the gateway guest. It expects in each gateway's namespace one interface
per host, named by ``host_interface``. It creates the WAN links, addresses, routes, neighbour entries and qdiscs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from wanbed.testbed.kernel.changing_ports import ChangingPorts
from wanbed.testbed.kernel.link_counters import PortCounters, StatisticsReader, port_counters
from wanbed.testbed.kernel.namespace import open_netlink, opened, write_sysctls
from wanbed.testbed.kernel.offloads import read_offloads
from wanbed.testbed.kernel.port_shape import PortShape, describe, host_port_shape, wan_port_shape
from wanbed.testbed.kernel.qdiscs import ReadBackError, apply_shape, change_netem, read_shape
from wanbed.testbed.network.gateway_plan import Gateway, GatewayPlan, HostPort, WanPort

NEIGHBOUR_PERMANENT = 0x80
_LOOPBACK_INDEX = 1

GATEWAY_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
}


def host_interface(host_index: int) -> str:
    """Return the name, in the gateway's namespace, of the port to host number ``host_index``."""
    return f"host{host_index}"


def _wan_interface(peer_index: int) -> str:
    """Return the name, in the gateway's namespace, of the port to datacenter number ``peer_index``."""
    return f"wan{peer_index}"


class GatewayProgrammer:
    """Program every gateway; ``namespaces`` has the path of each gateway's namespace, by datacenter.

    ``program`` builds the network without impairments, so that its delay can be measured; ``settle`` completes it.
    The programmer keeps netlink sockets for each gateway until ``close``.
    """

    def __init__(self, plan: GatewayPlan, namespaces: Mapping[str, str]) -> None:
        self._configured = plan
        self.plan = plan.without_impairments()
        self._index = {gateway.datacenter: number for number, gateway in enumerate(plan.gateways)}
        self._namespaces = dict(namespaces)
        self._netlink = {name: open_netlink(path) for name, path in self._namespaces.items()}
        self._statistics = {name: StatisticsReader(path) for name, path in self._namespaces.items()}
        self._wan_indices: dict[tuple[str, str], int] = {}
        self._changing: ChangingPorts | None = None

    def close(self) -> None:
        """Close the netlink sockets, which releases the namespaces."""
        for each in (*self._netlink.values(), *self._statistics.values()):
            each.close()
        if self._changing is not None:
            self._changing.close()

    def changing(self) -> ChangingPorts:
        """Return the ports that change, once they are settled; they are in their first states."""
        if self._changing is None:
            self._changing = ChangingPorts(self.plan, self._namespaces, self._wan_index)
        return self._changing

    def program(self) -> None:
        """Create WAN links, addresses, routes and qdiscs. Raise ReadBackError if qdiscs differ from the plan."""
        self.connect()
        for datacenter, interface, shape in self._shapes():
            netlink = self._netlink[datacenter]
            apply_shape(netlink, link_index(netlink, interface), shape)
        self.verify()

    def connect(self) -> None:
        """Create WAN links, addresses and routes: every host reaches every other, without qdiscs."""
        for gateway in self.plan.gateways:
            write_sysctls(self._namespaces[gateway.datacenter], GATEWAY_SYSCTLS)
            netlink = self._netlink[gateway.datacenter]
            netlink.link("set", index=_LOOPBACK_INDEX, state="up")
            for port in gateway.host_ports:
                attach_host_port(netlink, gateway, port, self.plan.mtu_bytes)
            for wan_port in gateway.wan_ports:
                if self._index[gateway.datacenter] < self._index[wan_port.peer]:
                    self._make_wan_link(gateway, wan_port)
        for gateway in self.plan.gateways:
            for wan_port in gateway.wan_ports:
                self._route_to_peer(self._netlink[gateway.datacenter], gateway, wan_port)

    def settle(self, trim_ns: int) -> None:
        """Set the configured impairments, and delays ``trim_ns`` below the configured ones. Raise ReadBackError."""
        previous, self.plan = self.plan, self._configured.with_less_wan_delay(trim_ns)
        if self.plan == previous:
            # Verified already; reading every class of a large network takes seconds.
            return
        for gateway in self.plan.gateways:
            netlink = self._netlink[gateway.datacenter]
            for port in gateway.wan_ports:
                index = link_index(netlink, _wan_interface(self._index[port.peer]))
                change_netem(netlink, index, wan_port_shape(gateway, port))
        self.verify()

    def verify(self) -> None:
        """Compare the qdiscs of every port with the plan. Raise ReadBackError at the first difference."""
        for datacenter, interface, configured in self._shapes():
            held = self._held(datacenter, interface)
            if held != configured:
                raise ReadBackError(f"{datacenter} {interface}: configured {configured}, the kernel holds {held}")

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel, formatted by ``describe``, by ``datacenter interface``."""
        return {
            f"{datacenter} {interface}": describe(self._held(datacenter, interface))
            for datacenter, interface, _ in self._shapes()
        }

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port, by ``datacenter interface``."""
        offloads: dict[str, Any] = {}
        for datacenter, namespace in self._namespaces.items():
            ports = [interface for owner, interface, _ in self._shapes() if owner == datacenter]
            held = read_offloads(namespace, ports)
            offloads |= {f"{datacenter} {interface}": facts for interface, facts in held.items()}
        return offloads

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port."""
        counters = []
        for gateway in self.plan.gateways:
            reader = self._statistics[gateway.datacenter]
            qdiscs = reader.qdiscs() if gateway.wan_ports else []
            for port in gateway.wan_ports:
                index = self._wan_index(gateway, port)
                of_port = [qdisc for qdisc in qdiscs if qdisc.interface == index]
                counters.append(port_counters(gateway.datacenter, port, reader.classes(index), of_port))
        return counters

    def _wan_index(self, gateway: Gateway, port: WanPort) -> int:
        """Return the index of a WAN port's interface. Cached: it does not change while the network is up."""
        key = gateway.datacenter, port.peer
        if key not in self._wan_indices:
            netlink = self._netlink[gateway.datacenter]
            self._wan_indices[key] = link_index(netlink, _wan_interface(self._index[port.peer]))
        return self._wan_indices[key]

    def _held(self, datacenter: str, interface: str) -> PortShape:
        netlink = self._netlink[datacenter]
        return read_shape(netlink, link_index(netlink, interface))

    def _shapes(self) -> Iterator[tuple[str, str, PortShape]]:
        for gateway in self.plan.gateways:
            for port in gateway.host_ports:
                yield gateway.datacenter, host_interface(port.host_index), host_port_shape(gateway, port)
            for wan_port in gateway.wan_ports:
                interface = _wan_interface(self._index[wan_port.peer])
                yield gateway.datacenter, interface, wan_port_shape(gateway, wan_port)

    def _make_wan_link(self, gateway: Gateway, port: WanPort) -> None:
        with opened(self._namespaces[port.peer]) as peer_namespace:
            mtu = self.plan.mtu_bytes
            peer = {
                "ifname": _wan_interface(self._index[gateway.datacenter]),
                "address": port.peer_mac,
                "mtu": mtu,
                "net_ns_fd": peer_namespace,
            }
            interface = _wan_interface(self._index[port.peer])
            own = self._netlink[gateway.datacenter]
            own.link("add", ifname=interface, kind="veth", address=port.mac, mtu=mtu, peer=peer)

    def _route_to_peer(self, netlink: Any, gateway: Gateway, port: WanPort) -> None:
        index = link_index(netlink, _wan_interface(self._index[port.peer]))
        netlink.link("set", index=index, state="up")
        netlink.neigh("add", dst=port.peer_gateway, lladdr=port.peer_mac, ifindex=index, state=NEIGHBOUR_PERMANENT)
        netlink.route(
            "add",
            dst=f"{port.peer_subnet}/24",
            gateway=port.peer_gateway,
            oif=index,
            flags=["onlink"],
            prefsrc=gateway.address,
        )


def attach_host_port(netlink: Any, gateway: Gateway, port: HostPort, mtu_bytes: int) -> None:
    """Configure the gateway's side of its link to a host: MTU, address, route and neighbour entry."""
    index = link_index(netlink, host_interface(port.host_index))
    netlink.link("set", index=index, mtu=mtu_bytes, address=port.gateway_mac)
    netlink.link("set", index=index, state="up")
    netlink.addr("add", index=index, address=gateway.address, prefixlen=32)
    netlink.route("add", dst=f"{port.host_address}/32", oif=index)
    netlink.neigh("add", dst=port.host_address, lladdr=port.host_mac, ifindex=index, state=NEIGHBOUR_PERMANENT)


def link_index(netlink: Any, interface: str) -> int:
    """Return the index of an interface by its name. Raise LookupError if there is none."""
    found = netlink.link_lookup(ifname=interface)
    if not found:
        raise LookupError(f"no interface {interface!r} in this namespace")
    return int(found[0])
