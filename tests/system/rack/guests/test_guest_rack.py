"""A network over three machines with kernels, cards and netem of their own, which User-Mode Linux guests play."""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.support.rack.emulated_part import EmulatedPart
from tests.support.rack.guests.guest_machine import CARD, GuestMachine
from tests.support.rack.guests.guest_wire import GuestWire
from tests.support.rack.one_machine import COUNTERS, QDISCS, SETTLE
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.hosts.ping import parse_ping
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.machine_plan import Underlay, first_vni, plan_machines
from wanbed.testbed.substrate.probe import probe_guest
from wanbed.testbed.testbed import wan_delay_trim_ns

pytestmark = pytest.mark.measures

SLOT = 5
TOPOLOGY = resolve_topology(
    parse_model(
        TopologySpec,
        {
            "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 1}],
            "links": [
                {"from": "east", "to": "west", "latency": "20ms", "rate": "40Mbit", "node_pair_rate": "15Mbit"},
                {"from": "west", "to": "east", "latency": "5ms", "rate": "50Mbit"},
            ],
        },
        "test",
    )
)
"""Three pairs exceed the trunk to the west. It is divided: node0 has two pairs for 20 Mbit/s, node1 one for 15."""
MACHINE_OF = {"east-0": "node0", "east-1": "node0", "east-2": "node1", "west-0": "node2"}
ADDRESSES = AddressBook(TOPOLOGY, SLOT)
RTT_MS, RTT_TOLERANCE_MS = 25.0, 0.5
GOODPUT_TOLERANCE = 0.03
ATTEMPTS = 4
FASTEST_LINK_BPS = 50e6
MEMORY_MIB = 512

CARD_STATE = f"tc qdisc show dev {CARD}; ip route; ip -4 address show dev {CARD}; ip link show dev {CARD}; ip -br link"
"""A shell's command for all of the card's settings."""


def address(host: str) -> str:
    return ADDRESSES.address(TOPOLOGY.host(host))


@pytest.fixture(scope="module", autouse=True)
def _offered() -> None:
    offer = probe_guest()
    if not offer.available:
        pytest.skip(f"no User-Mode Linux: {offer.reason}")


@pytest.fixture(scope="module")
def machines() -> Iterator[list[GuestMachine]]:
    with ExitStack() as up:
        wire = up.enter_context(GuestWire())
        yield [up.enter_context(GuestMachine(wire, number, memory_mib=MEMORY_MIB)) for number in range(3)]


@dataclass(frozen=True)
class Rack:
    """The parts of a network that is up, and its cards' state before that."""

    parts: Mapping[str, EmulatedPart]
    cards_before: list[str]

    def part(self, host: str) -> EmulatedPart:
        return self.parts[MACHINE_OF[host]]

    def echoes_ms(self, source: str, destination: str, count: int = 60) -> tuple[float, ...]:
        argv = ["ping", "-n", "-c", str(count), "-i", "0.05", address(destination)]
        return parse_ping(self.part(source).run(source, argv)).times_ms

    def goodput_bps(self, flows: Mapping[str, str], configured_bps: float) -> float:
        """Send from each source to its destination at once, and return what arrives in total.

        What else this machine does can only slow the guests down. Then it is measured again.
        """
        measured_bps = 0.0
        for _ in range(ATTEMPTS):
            measured_bps = max(measured_bps, self._goodput_bps(flows))
            if measured_bps >= (1 - GOODPUT_TOLERANCE) * configured_bps:
                break
        return measured_bps

    def _goodput_bps(self, flows: Mapping[str, str]) -> float:
        with ExitStack() as serving, ThreadPoolExecutor() as threads:
            for port, destination in enumerate(flows.values(), start=5201):
                server = self.part(destination).start(destination, ["iperf3", "-s", "-1", "-p", str(port)])
                serving.callback(server.kill)
                listening = f"until ss -Hlnt | grep -q :{port}; do sleep 0.1; done"
                self.part(destination).run(destination, ["sh", "-c", listening])
            measured = [
                threads.submit(
                    self.part(source).run,
                    source,
                    [*f"iperf3 -J -O 2 -t 6 -p {port} -c".split(), address(destination)],
                )
                for port, (source, destination) in enumerate(flows.items(), start=5201)
            ]
            reports = [json.loads(each.result()) for each in measured]
            return float(sum(report["end"]["sum_received"]["bits_per_second"] for report in reports))


@pytest.fixture(scope="module")
def rack(machines: list[GuestMachine]) -> Iterator[Rack]:
    """The network is up with its delays trimmed, as a testbed trims them."""
    underlays = {each.name: Underlay(each.address, CARD, 1500) for each in machines}
    plans = plan_machines(TOPOLOGY, SLOT, first_vni(SLOT), MACHINE_OF, underlays, timers=Timers.GUEST)
    before = [card_state(each) for each in machines]
    with ExitStack() as up:
        parts = {each.name: up.enter_context(EmulatedPart(each, plans[each.name])) for each in machines}
        for part in parts.values():
            assert part.wait_up()["name"] == "kernel"
        rack = Rack(parts, before)
        trim_ns = wan_delay_trim_ns(min(rack.echoes_ms("east-0", "west-0")), TOPOLOGY.rtt_ns("east", "west"))
        for part in parts.values():
            assert part.ask(f"{SETTLE} {trim_ns}") == "settled"
        yield rack
    assert [card_state(each) for each in machines] == before


def card_state(machine: GuestMachine) -> str:
    return re.sub(r"valid_lft.*", "", machine.check(["sh", "-c", CARD_STATE]))


def test_wan_has_its_configured_rtt_from_every_machine(rack: Rack) -> None:
    for source in ("east-0", "east-2"):
        assert min(rack.echoes_ms(source, "west-0")) == pytest.approx(RTT_MS, abs=RTT_TOLERANCE_MS)


def test_packets_inside_a_datacenter_are_not_delayed_by_the_wan(rack: Rack) -> None:
    assert min(rack.echoes_ms("east-0", "east-2")) < 1.0


@pytest.mark.parametrize(
    ("source", "destination", "rate_bps"), [("east-2", "west-0", 15e6), ("west-0", "east-2", 50e6)]
)
def test_a_node_pair_has_its_configured_goodput_in_either_direction(
    rack: Rack, source: str, destination: str, rate_bps: float
) -> None:
    configured_bps = tcp_goodput_bps(rate_bps, rack.part(source).plan.mtu_bytes)
    measured_bps = rack.goodput_bps({source: destination}, configured_bps)
    assert measured_bps == pytest.approx(configured_bps, rel=GOODPUT_TOLERANCE)


def test_each_machine_has_its_part_of_a_divided_trunk(rack: Rack) -> None:
    part = rack.parts["node0"]
    (split,) = part.plan.trunk_splits
    assert (split.machines, split.rate_bps) == (2, 20_000_000)
    part_bps = tcp_goodput_bps(split.rate_bps, part.plan.mtu_bytes)
    measured_bps = rack.goodput_bps({"east-0": "west-0", "east-1": "west-0"}, part_bps)
    assert measured_bps == pytest.approx(part_bps, rel=GOODPUT_TOLERANCE)


def test_wan_ports_count_what_this_machines_hosts_send(rack: Rack) -> None:
    (before,) = rack.part("east-2").ask(COUNTERS)
    rack.echoes_ms("east-2", "west-0", count=10)
    (port,) = rack.part("east-2").ask(COUNTERS)
    ((source, destination, (wire_bytes, *_)),) = port["pairs"]
    ((_, _, (earlier_bytes, *_)),) = before["pairs"]
    assert (source, destination) == ("east-2", "west-0")
    # An echo request is 98 bytes long. Connections of earlier tests may still send their last packets.
    assert wire_bytes - earlier_bytes >= 10 * 98
    (elsewhere,) = rack.part("east-0").ask(COUNTERS)
    assert [ends[:2] for ends in elsewhere["pairs"]] == [["east-0", "west-0"], ["east-1", "west-0"]]


def test_qdiscs_are_in_the_gateways_namespace_and_the_card_is_as_it_was(
    rack: Rack, machines: list[GuestMachine]
) -> None:
    assert set(rack.parts["node0"].ask(QDISCS)) == {"node0 host0", "node0 host1", "node0 wan1"}
    assert [card_state(each) for each in machines] == rack.cards_before


def test_what_the_machines_say_to_each_other_themselves_is_neither_delayed_nor_limited(
    rack: Rack, machines: list[GuestMachine]
) -> None:
    one, _, other = machines
    assert parse_ping(one.check(["ping", "-c", "20", "-i", "0.05", other.address])).shortest_ms < 1.0
    with other.start(["iperf3", "-s", "-1"]):
        other.check(["sh", "-c", "until ss -Hlnt | grep -q :5201; do sleep 0.1; done"])
        report = json.loads(one.check(["iperf3", "-J", "-t", "3", "-c", other.address]))
    assert report["end"]["sum_received"]["bits_per_second"] > 2 * FASTEST_LINK_BPS


@pytest.mark.soak
def test_a_kernel_without_vxlan_says_so_in_one_line() -> None:
    with GuestWire() as wire, GuestMachine(wire, 0, memory_mib=MEMORY_MIB, lacking=["vxlan"]) as machine:
        names = dict.fromkeys(MACHINE_OF.values())
        underlays = {name: Underlay(machine.address, CARD, 1500) for name in names}
        plans = plan_machines(TOPOLOGY, SLOT, first_vni(SLOT), MACHINE_OF, underlays)
        refusal = "MissingError: machine node0: the kernel 6.1.* has no vxlan devices: modprobe vxlan"
        with EmulatedPart(machine, plans["node0"]) as part, pytest.raises(RuntimeError, match=refusal):
            part.wait_up()
