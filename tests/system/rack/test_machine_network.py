"""Machines that are namespaces of this kernel carry a network together, without qdiscs, and leave their cards alone."""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.support.rack.emulated_part import EmulatedPart
from tests.support.rack.guests.guest_machine import CARD
from tests.support.rack.guests.guest_wire import GuestWire
from tests.support.rack.machines import LocalCommand, NamespaceMachine
from tests.support.rack.one_machine import OFFLOADS
from tests.support.until import until_within
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.kernel.gateway_programming import link_index
from wanbed.testbed.kernel.link_counters import StatisticsReader
from wanbed.testbed.kernel.namespace import inside, open_netlink
from wanbed.testbed.kernel.port_shape import wan_port_shape
from wanbed.testbed.kernel.qdiscs import apply_shape
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.gateway_plan import pair_class
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.machine.machine_network import VXLAN_PORT
from wanbed.testbed.rack.machine.wireguard_tunnel import TUNNEL_PORT, make_key_pair
from wanbed.testbed.rack.machine_plan import VXLAN, WIREGUARD, Underlay, first_vni, plan_machines

SLOT = 7
TOPOLOGY = resolve_topology(
    parse_model(
        TopologySpec,
        {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "5ms", "rate": "100Mbit"},
        },
        "test",
    )
)
MACHINE_OF = {"east-0": "space0", "east-1": "space1", "west-0": "space2", "west-1": "space2"}
ADDRESSES = AddressBook(TOPOLOGY, SLOT)
PATIENCE_S = 20.0
ALL_PROTOCOLS = 3
TRUNK_BPS, SECONDS = 100e6, 3

_CHANGES_BY_ITSELF = {"TCA_STATS", "TCA_STATS2", "RTA_CACHEINFO", "IFA_CACHEINFO"}


@pytest.fixture
def machines() -> Iterator[list[NamespaceMachine]]:
    with ExitStack() as up:
        wire = up.enter_context(GuestWire())
        yield [up.enter_context(NamespaceMachine(wire, number)) for number in range(3)]


def parts_on(machines: list[NamespaceMachine], kind: str) -> list[EmulatedPart]:
    keys = {each.name: make_key_pair() for each in machines} if kind == WIREGUARD else {}
    public = {name: pair.public for name, pair in keys.items()}
    underlays = {each.name: Underlay(each.address, CARD, 1500, kind, public.get(each.name, "")) for each in machines}
    plans = plan_machines(TOPOLOGY, SLOT, first_vni(SLOT), MACHINE_OF, underlays)
    private = {name: pair.private for name, pair in keys.items()}
    return [
        EmulatedPart(each, plans[each.name], shaped=False, private_key=private.get(each.name, "")) for each in machines
    ]


def kernel_state(machine: NamespaceMachine) -> dict[str, Any]:
    """Everything of the machine's own namespace that its traffic does not change by itself."""
    netlink = open_netlink(machine.namespace)
    try:
        return {
            "links": [
                (
                    link["index"],
                    link["flags"],
                    *(link.get_attr(f"IFLA_{name}") for name in ("IFNAME", "ADDRESS", "MTU")),
                )
                for link in netlink.get_links()
            ],
            "qdiscs": [plain(message) for message in netlink.get_qdiscs()],
            "routes": [plain(message) for message in netlink.get_routes()],
            "addresses": [plain(message) for message in netlink.get_addr()],
        }
    finally:
        netlink.close()


def plain(message: Any) -> str:
    attributes = [(name, str(value)) for name, value in message["attrs"] if name not in _CHANGES_BY_ITSELF]
    return str(([(key, message[key]) for key in message.keys() - {"attrs", "header", "event"}], attributes))


def receiving_sockets(machine: NamespaceMachine) -> int:
    with inside(machine.namespace), open("/proc/thread-self/net/udp", encoding="utf-8") as table:
        ports = {line.split()[1].partition(":")[2] for line in list(table)[1:]}
    return len(ports & {f"{VXLAN_PORT:04X}", f"{TUNNEL_PORT:04X}"})


@pytest.mark.parametrize("kind", [VXLAN, WIREGUARD])
def test_hosts_reach_each_other_wherever_they_are_and_the_cards_are_left_alone(
    machines: list[NamespaceMachine], kind: str
) -> None:
    before = [kernel_state(each) for each in machines]
    with ExitStack() as up:
        parts = [up.enter_context(part) for part in parts_on(machines, kind)]
        assert {part.wait_up()["name"] for part in parts} == {"unshaped"}
        for part in parts:
            for source in part.plan.hosts:
                for host in TOPOLOGY.hosts:
                    echo = part.run(source, ["ping", "-c", "1", "-W", "5", "-s", "1300", ADDRESSES.address(host)])
                    assert " 0% packet loss" in echo, (source, host.name, echo)
            offloads = part.ask(OFFLOADS)
            mtus = {name: facts["mtu_bytes"] for name, facts in offloads.items() if not name.endswith(CARD)}
            assert set(mtus.values()) == {{VXLAN: 1450, WIREGUARD: 1390}[kind]}
        assert [kernel_state(each) for each in machines] == before
        assert {receiving_sockets(each) for each in machines} == {1}
    until_within(PATIENCE_S, lambda: {receiving_sockets(each) for each in machines} == {0})
    assert [kernel_state(each) for each in machines] == before


def test_the_whole_trunk_is_at_the_gateway_machine_for_whoever_sends(machines: list[NamespaceMachine]) -> None:
    """The kernel may lack netem, so that only the trunk's HTB is set: leaves would delay and not share."""
    with ExitStack() as up:
        gateway = up.enter_context(NamespaceMachine(machines[0].wire, len(machines)))
        rack = [*machines, gateway]
        underlays = {each.name: Underlay(each.address, CARD, 1500) for each in rack}
        plans = plan_machines(TOPOLOGY, SLOT, first_vni(SLOT), MACHINE_OF, underlays, gateways={"east": gateway.name})
        parts = {each.name: up.enter_context(EmulatedPart(each, plans[each.name], shaped=False)) for each in rack}
        for part in parts.values():
            part.wait_up()
        plan = plans[gateway.name]
        (port,) = plan.gateway.wan_ports
        netlink = open_netlink(parts[gateway.name].namespace("east-gateway"))
        up.callback(netlink.close)
        shape = wan_port_shape(plan.gateway, port, plan.senders)
        bare = replace(shape, classes=tuple(replace(each, netem=None) for each in shape.classes))
        apply_shape(netlink, link_index(netlink, "wan1"), bare)
        alone = goodput_bps(parts, ["east-0"])
        both = goodput_bps(parts, ["east-0", "east-1"])
        counted = StatisticsReader(parts[gateway.name].namespace("east-gateway"))
        up.callback(counted.close)
        sent = {each.minor: each.wire_bytes for each in counted.classes(link_index(netlink, "wan1"))}
    # Divided among the machines, half of it would be left idle.
    assert 0.75 * TRUNK_BPS < sum(alone.values()) < TRUNK_BPS
    assert 0.75 * TRUNK_BPS < sum(both.values()) < TRUNK_BPS
    assert min(both.values()) > 0.25 * TRUNK_BPS
    pairs = [pair_class(source, source, len(port.destinations)) for source in (0, 1)]
    assert sent[pairs[0]] > sent[pairs[1]] > SECONDS * 0.25 * TRUNK_BPS / 8


def goodput_bps(parts: Mapping[str, EmulatedPart], sources: Sequence[str]) -> dict[str, float]:
    """Let hosts of the east send to those of the west at the same time. Return what each gets through."""
    running = {}
    with ExitStack() as up:
        for source in sources:
            target = source.replace("east", "west")
            server = parts[MACHINE_OF[target]].start(target, ["iperf3", "--server", "--one-off", "--forceflush"])
            up.callback(server.kill)
            until_within(PATIENCE_S, lambda server=server: "listening" in server.output())  # type: ignore[misc]
        for source in sources:
            client = ["iperf3", "--json", "--time", str(SECONDS), "--client"]
            target = ADDRESSES.address(TOPOLOGY.host(source.replace("east", "west")))
            running[source] = parts[MACHINE_OF[source]].start(source, [*client, target])
            up.callback(running[source].kill)
        for each in running.values():
            each.wait(PATIENCE_S)
        return {
            source: json.loads(each.output())["end"]["sum_received"]["bits_per_second"]
            for source, each in running.items()
        }


@pytest.mark.parametrize("kind", [VXLAN, WIREGUARD])
def test_what_hosts_send_is_read_on_the_wire_unless_it_is_encrypted(
    machines: list[NamespaceMachine], kind: str
) -> None:
    pattern = "77616e626564"
    with ExitStack() as up:
        parts = {part.machine.name: up.enter_context(part) for part in parts_on(machines, kind)}
        for part in parts.values():
            part.wait_up()
        with inside(machines[2].namespace):
            card = up.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)))
            card.bind((CARD, 0))
        echo = ["ping", "-c", "5", "-i", "0.2", "-p", pattern, ADDRESSES.address(TOPOLOGY.host("west-0"))]
        assert " 0% packet loss" in parts["space0"].run("east-0", echo)
        frames = list(received(card))
    assert sum(len(frame) for frame in frames) > 5 * 2 * 64
    assert any(bytes.fromhex(pattern) * 2 in frame for frame in frames) == (kind == VXLAN)


def received(card: socket.socket) -> Iterator[bytes]:
    """All frames that a card has sent or received and nobody has taken yet."""
    card.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            yield card.recv(2048)


@pytest.mark.parametrize("kind", [VXLAN, WIREGUARD])
def test_nothing_is_left_of_a_machine_whose_process_is_killed(machines: list[NamespaceMachine], kind: str) -> None:
    with parts_on(machines, kind)[0] as part:
        part.wait_up()
        assert receiving_sockets(machines[0]) > 0
        assert isinstance(part.running, LocalCommand)
        part.running.process.kill()
        until_within(PATIENCE_S, lambda: receiving_sockets(machines[0]) == 0)


def test_a_second_network_of_the_same_numbers_is_refused_in_one_line(machines: list[NamespaceMachine]) -> None:
    first, second = parts_on(machines, VXLAN)[0], parts_on(machines, VXLAN)[0]
    with first:
        first.wait_up()
        refusal = "SubstrateError: machine space0: VXLAN number 458752 at UDP port 14789 is in use"
        with second, pytest.raises(RuntimeError, match=refusal):
            second.wait_up()


def test_a_card_that_is_not_there_is_named(machines: list[NamespaceMachine]) -> None:
    underlays = {each.name: Underlay(each.address, "eth7", 1500) for each in machines}
    plan = plan_machines(TOPOLOGY, SLOT, first_vni(SLOT), MACHINE_OF, underlays)["space0"]
    with (
        EmulatedPart(machines[0], plan, shaped=False) as part,
        pytest.raises(RuntimeError, match="no interface 'eth7'"),
    ):
        part.wait_up()
