"""Each machine gets its part of the network, and its part of trunks that several send into."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import PortState, WanPort
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.links.wan_link import LinkConditions, WanLink, course_of
from wanbed.testbed.network.shared_rate import bytes_per_s
from wanbed.testbed.network.topology import Datacenter, Host, Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.machine_plan import (
    HEADER_BYTES,
    MachineLink,
    MachinePlan,
    Underlay,
    first_vni,
    plan_machines,
)

SLOT = 9
RATES = st.none() | st.integers(1000, 10**12)
DELAYS_NS = st.integers(0, 2 * 10**9)
CONDITIONS = st.builds(LinkConditions, DELAYS_NS, RATES, RATES)
MTUS = st.integers(1280, 9000)


def cards(machines: Mapping[str, int], kind: str = "vxlan") -> dict[str, Underlay]:
    """A card for each machine with its MTU."""
    return {
        name: Underlay(f"192.0.2.{number + 10}", "eth0", mtu, kind)
        for number, (name, mtu) in enumerate(machines.items())
    }


@st.composite
def racks(draw: st.DrawFn) -> tuple[Topology, dict[str, str], dict[str, Underlay]]:
    """A topology, the machine of each host, and the cards of the machines, of which each stands in one datacenter."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    datacenters = tuple(
        Datacenter(f"d{index}", index, tuple(Host(f"d{index}-{host}", f"d{index}", host, 1) for host in range(size)))
        for index, size in enumerate(sizes)
    )
    names = [datacenter.name for datacenter in datacenters]
    wan = tuple(
        WanLink((one, other), draw(CONDITIONS), draw(st.none() | CONDITIONS))
        for at, one in enumerate(names)
        for other in names[at + 1 :]
    )
    topology = Topology(datacenters, draw(DELAYS_NS), draw(RATES), wan)
    machine_of = {host.name: f"{host.datacenter}-m{draw(st.integers(0, 2))}" for host in topology.hosts}
    kind = draw(st.sampled_from(sorted(HEADER_BYTES)))
    return topology, machine_of, cards({machine: draw(MTUS) for machine in dict.fromkeys(machine_of.values())}, kind)


def planned(rack: tuple[Topology, dict[str, str], dict[str, Underlay]]) -> dict[str, MachinePlan]:
    topology, machine_of, underlays = rack
    return plan_machines(topology, SLOT, first_vni(SLOT), machine_of, underlays)


def east_and_west(wan: dict[str, Any], hosts: tuple[int, int] = (2, 1), mtu: str = "1500B") -> Topology:
    document = {
        "mtu": mtu,
        "datacenters": [{"name": "east", "hosts": hosts[0]}, {"name": "west", "hosts": hosts[1]}],
        "wan": wan,
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def plan_east_and_west(
    wan: dict[str, Any], machine_of: Mapping[str, str], kind: str = "vxlan", mtu: int = 1500
) -> dict[str, MachinePlan]:
    hosts = Counter(name.split("-", maxsplit=1)[0] for name in machine_of)
    topology = east_and_west(wan, (hosts["east"], hosts["west"]))
    underlays = cards(dict.fromkeys(machine_of.values(), mtu), kind)
    return plan_machines(topology, SLOT, first_vni(SLOT), machine_of, underlays)


TWO_AND_ONE = {"east-0": "a", "east-1": "b", "west-0": "c"}


@given(racks())
def test_each_host_is_on_its_machine_and_on_no_other(
    rack: tuple[Topology, dict[str, str], dict[str, Underlay]],
) -> None:
    topology, machine_of, _ = rack
    plans = planned(rack)
    assert {host: plan.machine for plan in plans.values() for host in plan.hosts} == machine_of
    for name, plan in plans.items():
        assert name == plan.machine
        assert [port.host for port in plan.host_ports] == list(plan.hosts)
        assert {topology.host(host).datacenter for host in plan.hosts} == {plan.gateway.datacenter}


@given(racks())
def test_a_plan_survives_its_json(rack: tuple[Topology, dict[str, str], dict[str, Underlay]]) -> None:
    for plan in planned(rack).values():
        assert MachinePlan.from_json(plan.to_json()) == plan


@given(racks())
def test_every_machine_reaches_every_host_that_is_not_its_own(
    rack: tuple[Topology, dict[str, str], dict[str, Underlay]],
) -> None:
    topology, machine_of, underlays = rack
    addresses = {host.name: AddressBook(topology, SLOT).address(host) for host in topology.hosts}
    for plan in planned(rack).values():
        reached = {
            address: (link.datacenter, far.machine, far.address)
            for link in plan.links
            for far in link.far
            for address in far.host_addresses
        }
        assert reached == {
            addresses[host.name]: (host.datacenter, machine_of[host.name], underlays[machine_of[host.name]].address)
            for host in topology.hosts
            if host.name not in plan.hosts
        }


@given(racks())
def test_both_ends_of_a_device_know_each_other(rack: tuple[Topology, dict[str, str], dict[str, Underlay]]) -> None:
    plans = planned(rack)
    links: dict[tuple[str, str], MachineLink] = {
        (plan.machine, link.datacenter): link for plan in plans.values() for link in plan.links
    }
    for (machine, datacenter), link in links.items():
        for far in link.far:
            opposite = links[far.machine, plans[machine].gateway.datacenter]
            assert plans[far.machine].gateway.datacenter == datacenter
            assert (far.mac, link.vni) == (opposite.mac, opposite.vni)
    assert len({link.mac for link in links.values()}) == len(links)
    for plan in plans.values():
        assert len({link.vni for link in plan.links}) == len({link.interface for link in plan.links}) == len(plan.links)


@given(racks())
def test_a_wan_port_is_that_of_the_whole_datacenter_but_for_its_part_of_the_trunk(
    rack: tuple[Topology, dict[str, str], dict[str, Underlay]],
) -> None:
    topology = rack[0]
    for plan in planned(rack).values():
        whole = {each.datacenter: each for each in plan_gateways(topology, SLOT, mtu_bytes=plan.mtu_bytes).gateways}
        ports = {port.peer: port for port in whole[plan.gateway.datacenter].wan_ports}
        split = {each.destination for each in plan.trunk_splits}
        assert plan.gateway.host_ports == whole[plan.gateway.datacenter].host_ports
        for port in plan.gateway.wan_ports:
            if port.peer not in split:
                assert port == ports[port.peer]
            assert (port.sources, port.destinations) == (ports[port.peer].sources, ports[port.peer].destinations)
            assert port.netem.delay_ns == topology.conditions(plan.gateway.datacenter, port.peer).latency_ns


@given(racks())
def test_machines_together_never_exceed_a_trunk(rack: tuple[Topology, dict[str, str], dict[str, Underlay]]) -> None:
    topology = rack[0]
    sent: Counter[tuple[str, str]] = Counter()
    for plan in planned(rack).values():
        for port in plan.gateway.wan_ports:
            pairs = len(plan.hosts) * len(port.destinations)
            leaf = port.netem.rate_bytes_per_s
            if leaf is not None:
                offered = pairs * leaf
                sent[plan.gateway.datacenter, port.peer] += min(
                    offered, offered if port.trunk is None else port.trunk.rate_bytes_per_s
                )
    for (here, peer), rate in sent.items():
        trunk_bps = topology.conditions(here, peer).rate_bps
        # Rates are whole bytes, at least 8 of them for each pair.
        hosts = len(topology.datacenter(here).hosts) * len(topology.datacenter(peer).hosts)
        assert trunk_bps is None or rate <= bytes_per_s(trunk_bps) + 8 * hosts


@st.composite
def racks_with_gateways(
    draw: st.DrawFn,
) -> tuple[Topology, dict[str, str], dict[str, str], dict[str, MachinePlan]]:
    """A topology, the machine of each host, gateway machines with and without hosts, and the plans."""
    topology, machine_of, underlays = draw(racks())
    gateways = {}
    for datacenter in topology.datacenters:
        own = [machine_of[host.name] for host in datacenter.hosts]
        if (gateway := draw(st.sampled_from([None, f"{datacenter.name}-gateway", *own]))) is not None:
            gateways[datacenter.name] = gateway
    kind = next(iter(underlays.values())).kind
    underlays |= cards(dict.fromkeys(set(gateways.values()) - underlays.keys(), 1500), kind)
    plans = plan_machines(topology, SLOT, first_vni(SLOT), machine_of, underlays, tag=7, gateways=gateways)
    return topology, machine_of, gateways, plans


@given(racks_with_gateways())
def test_every_packet_finds_its_way_and_leaves_its_datacenter_by_the_gateway_machine(
    rack: tuple[Topology, dict[str, str], dict[str, str], dict[str, MachinePlan]],
) -> None:
    topology, machine_of, gateways, plans = rack
    book = AddressBook(topology, SLOT)
    ways = {
        (plan.machine, address): (far.machine, link.datacenter)
        for plan in plans.values()
        for link in plan.links
        for far in link.far
        for address in far.host_addresses
    }
    for source in topology.hosts:
        for target in topology.hosts:
            passed = [machine_of[source.name]]
            while passed[-1] != machine_of[target.name]:
                passed.append(ways[passed[-1], book.address(target)][0])
            through = gateways.get(source.datacenter)
            if source.datacenter == target.datacenter:
                assert len(passed) <= 2
            elif through is not None:
                assert passed == list(dict.fromkeys([machine_of[source.name], through, machine_of[target.name]]))
                assert source.name in plans[through].senders


@given(racks_with_gateways())
def test_a_gateway_machine_holds_the_whole_trunks_of_its_datacenter(
    rack: tuple[Topology, dict[str, str], dict[str, str], dict[str, MachinePlan]],
) -> None:
    topology, _, gateways, plans = rack
    for plan in plans.values():
        assert MachinePlan.from_json(plan.to_json()) == plan
        datacenter = plan.gateway.datacenter
        if datacenter not in gateways:
            assert plan.senders == plan.hosts
            continue
        assert plan.trunk_splits == ()
        whole = plan_gateways(topology, SLOT, mtu_bytes=plan.mtu_bytes).gateways
        (ports,) = [each.wan_ports for each in whole if each.datacenter == datacenter]
        here = gateways[datacenter] == plan.machine
        assert plan.gateway.wan_ports == (ports if here else ())
        assert plan.senders == (tuple(host.name for host in topology.datacenter(datacenter).hosts) if here else ())


def test_two_racks_of_the_same_slot_share_no_mac_address() -> None:
    racks_of_tags = [
        plan_machines(east_and_west({}), SLOT, first_vni(SLOT), TWO_AND_ONE, cards(dict.fromkeys("abc", 1500)), tag=tag)
        for tag in (0x00_00_01, 0xFF_FF_FE)
    ]
    one, other = ({link.mac for plan in plans.values() for link in plan.links} for plans in racks_of_tags)
    assert one == {f"02:00:00:01:00:{number:02x}" for number in (0, 1, 2, 3, 4)}
    assert not one & other
    assert all(mac.startswith("02:ff:ff:fe:") for mac in other)


def test_a_trunk_is_divided_among_the_machines_that_send() -> None:
    plans = plan_east_and_west({"rate": "100Mbit"}, {**TWO_AND_ONE, "west-1": "c"})
    for machine in ("a", "b"):
        (split,) = plans[machine].trunk_splits
        assert (split.source, split.destination, split.machines, split.rate_bps) == ("east", "west", 2, 50_000_000)
        (port,) = plans[machine].gateway.wan_ports
        assert port.trunk is not None
        assert port.trunk.rate_bytes_per_s == port.netem.rate_bytes_per_s == 50_000_000 // 8
    # One machine sends this way: its trunk is the whole one.
    assert plans["c"].trunk_splits == ()
    (back,) = plans["c"].gateway.wan_ports
    assert back.trunk is not None
    assert back.trunk.rate_bytes_per_s == 100_000_000 // 8


def test_a_machine_with_one_pair_needs_no_trunk_beside_its_leaf() -> None:
    (port,) = plan_east_and_west({"rate": "100Mbit"}, TWO_AND_ONE)["a"].gateway.wan_ports
    assert (port.trunk, port.netem.rate_bytes_per_s) == (None, 50_000_000 // 8)


def test_a_trunk_that_its_pairs_cannot_fill_is_not_divided() -> None:
    plans = plan_east_and_west({"rate": "100Mbit", "node_pair_rate": "50Mbit"}, TWO_AND_ONE)
    assert [plan.trunk_splits for plan in plans.values()] == [(), (), ()]


@pytest.mark.parametrize(
    ("kind", "mtu", "expected"), [("vxlan", 1500, 1450), ("vxlan", 9000, 1500), ("wireguard", 1500, 1390)]
)
def test_emulated_interfaces_leave_room_for_the_underlays_headers(kind: str, mtu: int, expected: int) -> None:
    assert {plan.mtu_bytes for plan in plan_east_and_west({}, TWO_AND_ONE, kind, mtu).values()} == {expected}


def test_the_smallest_card_gives_everybodys_mtu() -> None:
    underlays = cards({"a": 9000, "b": 1460, "c": 1500})
    plans = plan_machines(east_and_west({}), SLOT, first_vni(SLOT), TWO_AND_ONE, underlays)
    assert {plan.mtu_bytes for plan in plans.values()} == {1410}


def test_an_mtu_that_is_asked_for_is_had_or_refused_with_what_there_is() -> None:
    planned = partial(plan_machines, slot=SLOT, vni=first_vni(SLOT), machine_of=TWO_AND_ONE)
    plans = planned(east_and_west({}, mtu="8950B"), underlays=cards(dict.fromkeys("abc", 9000)))
    assert {plan.mtu_bytes for plan in plans.values()} == {8950}
    with pytest.raises(InputError, match=r"^topology\.mtu: .*vxlan leaves 1450B of the MTU of machine b: give no more"):
        planned(east_and_west({}, mtu="8950B"), underlays=cards({"a": 9000, "b": 1500, "c": 9000}))


def test_queues_hold_as_many_bytes_with_smaller_frames() -> None:
    # 120 ms of 20 Gbit/s in frames of 1464 bytes.
    plans = plan_east_and_west({"rate": "20Gbit", "latency": "40ms"}, {"east-0": "a", "west-0": "b"})
    assert plans["a"].gateway.wan_ports[0].netem.limit_packets == -(-2_400_000_000 // (8 * 1464))


def test_goodput_of_smaller_frames() -> None:
    assert tcp_goodput_bps(50e6, 1450) == pytest.approx(50e6 * 1398 / 1464)
    assert tcp_goodput_bps(50e6) == pytest.approx(50e6 * 1448 / 1514)


def test_slots_share_no_vxlan_numbers() -> None:
    assert first_vni(10) - first_vni(9) >= 256**2
    assert first_vni(250) + 256**2 <= 2**24


@pytest.mark.parametrize(
    ("machine_of", "underlay", "message"),
    [
        ({"east-0": "a", "east-1": "b", "west-0": "b"}, {}, "machine b: carries hosts of east and west"),
        (
            TWO_AND_ONE,
            {"kind": "geneve"},
            "machine b: underlay 'geneve' is not known: give vxlan or wireguard",
        ),
        (TWO_AND_ONE, {"kind": "wireguard"}, "underlay: vxlan and wireguard on one rack do not reach each other"),
        (TWO_AND_ONE, {"address": "fd00::1"}, "machine b: address 'fd00::1' of eth0 is no IPv4 address"),
    ],
)
def test_a_rack_that_cannot_carry_the_network_is_refused_in_one_line(
    machine_of: dict[str, str], underlay: dict[str, str], message: str
) -> None:
    underlays = cards(dict.fromkeys("abc", 1500))
    underlays["b"] = Underlay(**{"address": "192.0.2.7", "interface": "eth0", "mtu": 1500, **underlay})  # type: ignore[arg-type]
    with pytest.raises(InputError) as refused:
        plan_machines(east_and_west({}), SLOT, first_vni(SLOT), machine_of, underlays)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_vxlan_numbers_have_24_bits() -> None:
    with pytest.raises(InputError, match="24 bits"):
        plan_machines(east_and_west({}), SLOT, 2**24 - 2, TWO_AND_ONE, cards(dict.fromkeys("abc", 1500)))


def test_a_datacenter_on_one_machine_has_no_device_for_itself() -> None:
    plans = plan_east_and_west({}, TWO_AND_ONE)
    assert [link.interface for link in plans["a"].links] == ["lan", "wan1"]
    assert [link.interface for link in plans["c"].links] == ["wan0"]


def test_delay_is_trimmed_on_the_wan_only() -> None:
    plan = plan_east_and_west({"latency": "20ms", "jitter": "1ms"}, TWO_AND_ONE)["a"]
    (port,) = plan.with_less_wan_delay(300_000).gateway.wan_ports
    assert port.netem.delay_ns == 19_700_000
    (bare,) = plan.without_impairments().gateway.wan_ports
    assert (bare.netem.impairments.jitter_ns, port.netem.impairments.jitter_ns) == (0, 1_000_000)


ON_TWO = {"east-0": "a", "east-1": "a", "east-2": "b", "west-0": "c"}
EVENTS = [
    {"at": "1s", "rate": "30Mbit", "node_pair_rate": "12Mbit"},
    {"at": "2s", "rate": "300Mbit"},
    {"at": "3s", "for": "1s", "down": True},
]


def split_of(wan: dict[str, Any], gateways: dict[str, str] | None = None) -> dict[str, MachinePlan]:
    document = {
        "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "5ms", **wan},
    }
    topology: Topology = resolve_topology(parse_model(TopologySpec, document, "test"))
    names = [*dict.fromkeys(ON_TWO.values()), *(gateways or {}).values()]
    underlays = {name: Underlay(f"192.0.2.{number}", "eth0", 1500) for number, name in enumerate(names, start=1)}
    return plan_machines(topology, 1, 1, ON_TWO, underlays, gateways=gateways or {})


def port(plan: MachinePlan) -> WanPort:
    (only,) = plan.gateway.wan_ports
    return only


def rates_mbit(state: PortState) -> tuple[float | None, float | None]:
    """The rates of the trunk and of a node pair."""
    trunk, pair = None if state.trunk is None else state.trunk.rate_bytes_per_s, pair_bytes_per_s(state)
    return None if trunk is None else trunk * 8e-6, None if pair is None else pair * 8e-6


def pair_bytes_per_s(state: PortState) -> int | None:
    """The rate of a node pair: of its leaf, or above it."""
    return state.netem.rate_bytes_per_s if state.pair is None else state.pair.rate_bytes_per_s


def test_every_state_of_a_trunk_is_divided_as_far_as_it_can_bind() -> None:
    plans = split_of({"rate": "60Mbit", "node_pair_rate": "50Mbit", "events": EVENTS})
    courses = {name: port(plans[name]).course for name in "ab"}
    assert courses["a"] is not None
    assert courses["b"] is not None
    # The machine ``a`` sends from two of the three hosts. From 2 s on the pairs together do not fill 300 Mbit/s.
    assert [rates_mbit(state) for state in courses["a"].states[:3]] == [(30, 30), (15, 12), (None, 12)]
    assert [rates_mbit(state) for state in courses["b"].states[:3]] == [(None, 30), (None, 12), (None, 12)]
    assert courses["a"].states[3].netem.impairments.loss == 1
    assert courses["a"].steps == courses["b"].steps
    for name in "ab":
        held = port(plans[name])
        assert held.course is not None
        assert (held.netem, held.trunk) == (held.course.states[0].netem, held.course.states[0].trunk)
        (split,) = plans[name].trunk_splits
        assert (split.machines, split.rate_bps) == (2, 30_000_000)


def test_a_trunk_that_binds_only_later_is_divided_too() -> None:
    plans = split_of({"rate": "1Gbit", "node_pair_rate": "20Mbit", "events": [{"at": "1s", "rate": "40Mbit"}]})
    (split,) = plans["a"].trunk_splits
    assert (split.source, split.destination, split.rate_bps) == ("east", "west", 20_000_000)
    course = port(plans["a"]).course
    assert course is not None
    assert [rates_mbit(state) for state in course.states] == [(None, 20), (20, 20)]


def test_the_gateway_machine_has_the_course_of_the_whole_trunk_and_the_others_have_none() -> None:
    plans = split_of({"rate": "60Mbit", "events": EVENTS}, {"east": "g"})
    course = port(plans["g"]).course
    assert course is not None
    assert [rates_mbit(state)[0] for state in course.states[:3]] == [60, 30, None]
    assert [plans[name].gateway.wan_ports for name in "ab"] == [(), ()]
    assert MachinePlan.from_json(plans["g"].to_json()) == plans["g"]


RATES_BPS = st.none() | st.integers(1000, 10**11)


@given(
    st.lists(st.builds(LinkConditions, st.just(0), RATES_BPS, RATES_BPS), min_size=2, max_size=5),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5),
)
def test_machines_together_never_exceed_a_trunk_in_any_of_its_states(
    ever: list[LinkConditions], machines: list[str]
) -> None:
    document = {
        "datacenters": [{"name": "east", "hosts": len(machines)}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "0ms"},
    }
    topology = resolve_topology(parse_model(TopologySpec, document, "test"))
    course = course_of(enumerate(ever))
    (link,) = topology.wan
    topology = replace(topology, wan=(replace(link, conditions=course.first, courses=(course, None)),))
    machine_of = {f"east-{number}": name for number, name in enumerate(machines)} | {"west-0": "w"}
    underlays = {name: Underlay("192.0.2.1", "eth0", 1500) for name in {*machine_of.values()}}
    plans = plan_machines(topology, 1, 1, machine_of, underlays)
    sending = [plans[name] for name in dict.fromkeys(machines)]
    for number, conditions in enumerate(course.distinct):
        if conditions.rate_bps is None:
            continue
        sent = 0
        for plan in sending:
            own = port(plan)
            state = PortState(own.netem, own.trunk) if own.course is None else own.course.states[number]
            rate = pair_bytes_per_s(state)
            assert rate is not None
            offered = len(plan.hosts) * rate
            sent += offered if state.trunk is None else min(offered, state.trunk.rate_bytes_per_s)
        # Rates are whole bytes, at least 8 of them for each pair.
        assert sent <= bytes_per_s(conditions.rate_bps) + 8 * len(machines)
