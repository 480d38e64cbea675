from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wanbed.ground.impairments import Impairments
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.ethernet import FRAME_BYTES
from wanbed.testbed.network.gateway_layout import (
    SHORT_PACKETS_MIN,
    SUPER_PACKETS_MIN,
    UNLIMITED_RATE_BPS,
    plan_gateways,
    queue_limit_packets,
)
from wanbed.testbed.network.gateway_plan import GatewayPlan, PortState, WanPort, pair_class
from wanbed.testbed.network.links.wan_link import LinkConditions, WanLink, course_of
from wanbed.testbed.network.shared_rate import Timers, bytes_per_s
from wanbed.testbed.network.topology import Datacenter, Host, Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

FRAME_BITS = 8 * 1514
NETEM_LIMIT_MAX = 2**32 - 1
FLOOR = 1000

RATES = st.none() | st.integers(1, 10**12)
DELAYS_NS = st.integers(0, 2 * 10**9)
IMPAIRMENTS = st.builds(Impairments, DELAYS_NS, st.floats(0, 1))
CONDITIONS = st.builds(LinkConditions, DELAYS_NS, RATES, RATES, IMPAIRMENTS)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    datacenters = tuple(
        Datacenter(f"d{index}", index, tuple(Host(f"d{index}-{host}", f"d{index}", host, 1) for host in range(size)))
        for index, size in enumerate(sizes)
    )
    names = [datacenter.name for datacenter in datacenters]
    backs = st.none() | CONDITIONS
    wan = tuple(
        WanLink((one, other), draw(CONDITIONS), draw(backs))
        for at, one in enumerate(names)
        for other in names[at + 1 :]
    )
    return Topology(datacenters, draw(DELAYS_NS), draw(RATES), wan)


def two_datacenters(
    wan: dict[str, str], intra: dict[str, str] | None = None, hosts: tuple[int, int] = (2, 1)
) -> Topology:
    document = {
        "datacenters": [{"name": "east", "hosts": hosts[0]}, {"name": "west", "hosts": hosts[1]}],
        "wan": wan,
        "intra": intra or {},
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def kept(rate_bps: int | None) -> int | None:
    return None if rate_bps is None else bytes_per_s(rate_bps)


def wan_ports(plan: GatewayPlan) -> dict[tuple[str, str], WanPort]:
    return {(gateway.datacenter, port.peer): port for gateway in plan.gateways for port in gateway.wan_ports}


@given(st.integers(1, 10**12), DELAYS_NS, DELAYS_NS)
def test_queue_limit_is_packets_in_flight_plus_a_bandwidth_delay_product(
    rate_bps: int, latency_ns: int, jitter_ns: int
) -> None:
    in_flight_bits = Fraction(rate_bps * (latency_ns + jitter_ns), 10**9)
    queued_bits = Fraction(rate_bps * 2 * latency_ns, 10**9)
    limit = queue_limit_packets(rate_bps, latency_ns, jitter_ns, rtt_ns=2 * latency_ns, floor_packets=FLOOR)
    assert limit * FRAME_BITS >= (in_flight_bits + queued_bits) * (1 - Fraction(1, 10**12))
    assert limit >= FLOOR


@given(st.integers(1, 10**12), DELAYS_NS)
def test_a_queue_is_no_larger_than_that_and_20_ms(rate_bps: int, latency_ns: int) -> None:
    held_bits = Fraction(rate_bps * (3 * latency_ns + 20_000_000), 10**9)
    assert queue_limit_packets(rate_bps, latency_ns, rtt_ns=2 * latency_ns, floor_packets=FLOOR) <= max(
        FLOOR, held_bits / FRAME_BITS + 1
    )


def test_a_40_ms_link_of_20_gbit_holds_three_latencies_of_full_frames() -> None:
    # 120 ms of 20 Gbit/s are 2.4 Gbit, which are 198,150.6 frames of 1514 bytes.
    assert queue_limit_packets(20_000_000_000, 40_000_000, rtt_ns=80_000_000, floor_packets=FLOOR) == 198_151


@pytest.mark.parametrize(("rtt_ms", "queued_ms"), [(0, 20), (20, 20), (30, 30)])
def test_a_queue_holds_a_round_trip_and_20_ms_at_least(rtt_ms: int, queued_ms: int) -> None:
    # 1 Gbit/s are 82.56 frames a millisecond.
    frames = 10**9 * (10 + queued_ms) / 1000 / FRAME_BITS
    limit = queue_limit_packets(10**9, 10_000_000, rtt_ns=rtt_ms * 1_000_000, floor_packets=1)
    assert frames <= limit <= frames + 2


def test_the_fastest_card_has_400_gbit() -> None:
    frames = 400 * 10**9 * 0.1 / FRAME_BITS
    assert queue_limit_packets(None, 0, rtt_ns=100_000_000, floor_packets=1) == pytest.approx(frames, abs=2)


def test_queue_of_a_slow_link_holds_stock_windows() -> None:
    # 16 connections with 3.9 MB in flight each, in frames and in super-packets.
    topology = two_datacenters({"rate": "10Mbit", "latency": "1ms"}, {"rate": "10Mbit"})
    packets = {Timers.VIRTUAL: (SHORT_PACKETS_MIN, 1448), Timers.KERNEL: (SUPER_PACKETS_MIN, 64 * 1024)}
    for timers, (limit, packet_bytes) in packets.items():
        assert limit * packet_bytes > 16 * 3_900_000
        for gateway in plan_gateways(topology, 1, timers).gateways:
            leaves = [port.netem for port in gateway.wan_ports]
            leaves += [leaf for port in gateway.host_ports for leaf in (port.intra, port.far[0].netem)]
            assert {leaf.limit_packets for leaf in leaves} == {limit}


@given(DELAYS_NS, DELAYS_NS)
def test_an_unlimited_rate_is_bounded_by_the_fastest_card(latency_ns: int, jitter_ns: int) -> None:
    assert queue_limit_packets(
        None, latency_ns, jitter_ns, rtt_ns=2 * latency_ns, floor_packets=FLOOR
    ) == queue_limit_packets(UNLIMITED_RATE_BPS, latency_ns, jitter_ns, rtt_ns=2 * latency_ns, floor_packets=FLOOR)


@given(RATES, st.integers(0, 10**14), st.integers(0, 10**14))
def test_a_queues_limit_fits_the_kernels_field_whatever_the_latency(
    rate_bps: int | None, latency_ns: int, jitter_ns: int
) -> None:
    assert (
        queue_limit_packets(rate_bps, latency_ns, jitter_ns, rtt_ns=2 * latency_ns, floor_packets=FLOOR)
        <= NETEM_LIMIT_MAX
    )


@given(topologies())
def test_every_datacenter_has_a_port_for_each_host_and_each_other_datacenter(topology: Topology) -> None:
    plan = plan_gateways(topology, slot=9)
    names = [datacenter.name for datacenter in topology.datacenters]
    assert [gateway.datacenter for gateway in plan.gateways] == names
    for gateway, datacenter in zip(plan.gateways, topology.datacenters, strict=True):
        assert [port.host for port in gateway.host_ports] == [host.name for host in datacenter.hosts]
        assert [port.peer for port in gateway.wan_ports] == [name for name in names if name != datacenter.name]
        assert {port.intra.delay_ns for port in gateway.host_ports} == {topology.intra_latency_ns}
        assert {port.intra.rate_bytes_per_s for port in gateway.host_ports} == {kept(topology.intra_rate_bps)}


@given(topologies())
def test_wan_port_has_its_links_netem_and_a_class_for_each_node_pair(topology: Topology) -> None:
    for (here, peer), port in wan_ports(plan_gateways(topology, slot=9)).items():
        conditions = topology.conditions(here, peer)
        assert port.sources == tuple(host.name for host in topology.datacenter(here).hosts)
        assert port.destinations == tuple(host.name for host in topology.datacenter(peer).hosts)
        assert port.netem.rate_bytes_per_s == kept(conditions.pair_rate_bps)
        assert port.trunk is None or port.trunk.rate_bytes_per_s == kept(conditions.rate_bps)
        assert port.netem.delay_ns == conditions.latency_ns
        assert port.netem.impairments == conditions.impairments.rounded()
        classes = {
            pair_class(source, destination, len(port.destinations))
            for source in range(len(port.sources))
            for destination in range(len(port.destinations))
        }
        assert len(classes) == len(port.sources) * len(port.destinations)


@given(topologies())
def test_the_two_ends_of_a_wan_link_agree(topology: Topology) -> None:
    plan = plan_gateways(topology, slot=9)
    gateways = {gateway.datacenter: gateway for gateway in plan.gateways}
    ports = wan_ports(plan)
    for (here, peer), port in ports.items():
        opposite = ports[peer, here]
        assert (port.mac, port.peer_mac) == (opposite.peer_mac, opposite.mac)
        assert (port.peer_gateway, port.peer_subnet) == (gateways[peer].address, gateways[peer].subnet)
        if topology.conditions(here, peer) == topology.conditions(peer, here):
            assert port.netem == opposite.netem


@given(topologies())
def test_a_gateway_delays_and_limits_what_it_sends_over_a_wan_link(topology: Topology) -> None:
    for (here, peer), port in wan_ports(plan_gateways(topology, slot=9)).items():
        conditions = topology.conditions(here, peer)
        assert (port.netem.delay_ns, port.netem.impairments) == (
            conditions.latency_ns,
            conditions.impairments.rounded(),
        )
        assert port.netem.rate_bytes_per_s == kept(conditions.pair_rate_bps)


@given(topologies())
def test_addresses_are_distinct_and_lie_in_their_datacenters_subnet(topology: Topology) -> None:
    addresses = []
    for gateway in plan_gateways(topology, slot=9).gateways:
        inside = {str(address) for address in IPv4Network(f"{gateway.subnet}/24").hosts()}
        here = [gateway.address, *(port.host_address for port in gateway.host_ports)]
        assert set(here) <= inside
        addresses += here
    assert len(set(addresses)) == len(addresses)


def test_a_single_datacenter_has_no_wan() -> None:
    topology = resolve_topology(parse_model(TopologySpec, {"datacenters": [{"name": "east", "hosts": 3}]}, "test"))
    (gateway,) = plan_gateways(topology, slot=1).gateways
    assert gateway.wan_ports == ()


@pytest.mark.parametrize(("wan", "exact"), [({"loss": "0.1%"}, True), ({"jitter": "2ms"}, False), ({}, False)])
def test_packets_cross_one_by_one_only_where_some_are_lost(wan: dict[str, str], exact: bool) -> None:
    assert plan_gateways(two_datacenters({"latency": "5ms", **wan}), slot=1).exact_packets is exact


@given(st.floats(0, 1))
def test_loss_of_nine_digits_reads_back_exactly(loss: float) -> None:
    datacenters = (Datacenter("e", 0, (Host("e-0", "e", 0, 1),)), Datacenter("w", 1, (Host("w-0", "w", 0, 1),)))
    wan = (WanLink(("e", "w"), LinkConditions(impairments=Impairments(loss=loss))),)
    topology = Topology(datacenters, 0, None, wan)
    planned = wan_ports(plan_gateways(topology, slot=1))["e", "w"].netem.impairments.loss
    assert planned == round(loss, 9)


@pytest.mark.parametrize(
    ("wan", "hosts", "shared"),
    [
        ({"rate": "100Mbit"}, (1, 1), False),
        ({"rate": "100Mbit"}, (2, 1), True),
        ({"rate": "unlimited"}, (2, 2), False),
        ({"rate": "100Mbit", "node_pair_rate": "50Mbit"}, (2, 1), False),
        ({"rate": "100Mbit", "node_pair_rate": "51Mbit"}, (2, 1), True),
        ({"rate": "100Mbit", "node_pair_rate": "10Mbit"}, (1, 1), False),
    ],
)
def test_a_trunk_has_a_bucket_only_where_its_pairs_exceed_it_together(
    wan: dict[str, str], hosts: tuple[int, int], shared: bool
) -> None:
    ports = wan_ports(plan_gateways(two_datacenters(wan, hosts=hosts), slot=1))
    assert [port.trunk is not None for port in ports.values()] == [shared, shared]


@pytest.mark.parametrize(
    ("wan", "intra", "hosts", "shared"),
    [
        ({"rate": "100Mbit"}, {"rate": "unlimited"}, (3, 3), False),
        # One sender, near or far.
        ({"rate": "1Mbit", "node_pair_rate": "1Mbit"}, {"rate": "1Gbit"}, (1, 1), False),
        ({"rate": "1Gbit"}, {"rate": "100Mbit"}, (1, 1), False),
        # Two far ones that fit the port, and two that do not; a trunk that keeps them from it.
        ({"node_pair_rate": "50Mbit"}, {"rate": "100Mbit"}, (1, 2), False),
        ({"node_pair_rate": "51Mbit"}, {"rate": "100Mbit"}, (1, 2), True),
        ({"node_pair_rate": "51Mbit", "rate": "100Mbit"}, {"rate": "100Mbit"}, (1, 2), False),
        # A near one, and a far one that comes on top.
        ({"node_pair_rate": "1Mbit"}, {"rate": "100Mbit"}, (2, 1), True),
    ],
)
def test_a_hosts_port_has_a_bucket_only_where_senders_exceed_it_together(
    wan: dict[str, str], intra: dict[str, str], hosts: tuple[int, int], shared: bool
) -> None:
    (east, _) = plan_gateways(two_datacenters(wan, intra, hosts), slot=1).gateways
    assert {port.shared is not None for port in east.host_ports} == {shared}


def test_wan_packets_are_serialised_again_only_by_a_slower_port() -> None:
    for intra_rate, rate in (("99Mbit", 99_000_000 // 8), ("100Mbit", None), ("1Gbit", None)):
        topology = two_datacenters({"rate": "1Gbit", "node_pair_rate": "100Mbit"}, {"rate": intra_rate})
        for gateway in plan_gateways(topology, slot=1).gateways:
            for port in gateway.host_ports:
                (far,) = port.far
                assert (far.netem.delay_ns, far.netem.rate_bytes_per_s) == (0, rate)


def test_port_without_a_rate_has_no_leaves_for_far_hosts() -> None:
    for gateway in plan_gateways(two_datacenters({"rate": "1Mbit"}), slot=1).gateways:
        assert {port.far for port in gateway.host_ports} == {()}


@pytest.mark.parametrize(
    ("wan", "intra", "frames"),
    [
        # No line has a rate: packets are as large as the kernel makes them.
        ({}, {}, None),
        ({"rate": "1Gbit", "node_pair_rate": "10Mbit"}, {}, 2),
        # 0.25 ms of 100 Mbit/s are 2.06 frames; of 1 Gbit/s, 20.6; of 10 Gbit/s more than a packet may hold.
        ({"rate": "100Mbit"}, {}, 2),
        ({"rate": "1Gbit"}, {}, 20),
        ({"rate": "10Gbit"}, {}, 45),
        # An eightieth of an RTT of 2 ms is 25 us.
        ({"rate": "1Gbit", "latency": "1ms"}, {}, 2),
        ({"rate": "10Gbit", "latency": "1ms"}, {}, 20),
        ({"rate": "1Gbit", "latency": "20ms"}, {}, 20),
        ({"rate": "1Mbit"}, {}, 2),
        ({"rate": "10Gbit"}, {"rate": "1Gbit"}, 20),
        # Ports that one sender alone cannot fill serialise as well.
        ({}, {"rate": "100Mbit"}, 2),
        ({"rate": "10Gbit", "node_pair_rate": "200Mbit"}, {"rate": "1Gbit"}, 4),
        ({"rate": "1Gbit", "loss": "0.1%"}, {}, 1),
    ],
)
def test_in_virtual_time_a_packet_is_short_on_every_line(
    wan: dict[str, str], intra: dict[str, str], frames: int | None
) -> None:
    (east, _) = plan_gateways(two_datacenters(wan, intra), slot=1, timers=Timers.VIRTUAL).gateways
    assert east.super_packet_frames == frames
    (port,) = east.wan_ports
    if port.trunk is not None and frames is not None:
        burst_bytes = port.trunk.burst_us * port.trunk.rate_bytes_per_s / 1e6
        assert frames * FRAME_BYTES <= burst_bytes <= frames * FRAME_BYTES + port.trunk.rate_bytes_per_s / 1e6


def test_frames_of_a_larger_mtu_are_fewer_at_once_and_in_queues() -> None:
    rates = {"rate": "20Gbit", "node_pair_rate": "5Gbit", "latency": "40ms"}
    usual, jumbo = (
        plan_gateways(replace(two_datacenters(rates), mtu_bytes=mtu_bytes), 1, Timers.VIRTUAL)
        for mtu_bytes in (1500, 9001)
    )
    assert (usual.mtu_bytes, jumbo.mtu_bytes) == (1500, 9001)
    # 64 KiB hold 45 frames of 1514 bytes, and 7 of 9015.
    assert (usual.gateways[0].super_packet_frames, jumbo.gateways[0].super_packet_frames) == (45, 7)
    held = [plan.gateways[0].wan_ports[0].netem.limit_packets for plan in (usual, jumbo)]
    assert held == [max(100_000, -(-5 * 120_000_000 // (8 * frame))) for frame in (1514, 9015)]


def test_on_the_real_clock_packets_are_as_large_as_hosts_make_them() -> None:
    (east, _) = plan_gateways(two_datacenters({"rate": "100Mbit"}), slot=1).gateways
    assert east.super_packet_frames is None


def test_loss_falls_on_single_packets_on_either_clock() -> None:
    topology = two_datacenters({"rate": "100Mbit", "loss": "1%"})
    for timers in Timers:
        for gateway in plan_gateways(topology, 1, timers).gateways:
            assert gateway.super_packet_frames == 1


def changing(*conditions: LinkConditions, hosts: int = 2) -> Topology:
    """Two datacenters whose link has these conditions in both directions, for a second each."""
    constant = two_datacenters({}, hosts=(hosts, hosts))
    course = course_of((number * 10**9, each) for number, each in enumerate(conditions))
    return replace(constant, wan=(WanLink(("east", "west"), conditions[0], courses=(course, course)),))


def states(topology: Topology, timers: Timers = Timers.KERNEL) -> tuple[PortState, ...]:
    course = wan_ports(plan_gateways(topology, 1, timers))["east", "west"].course
    assert course is not None
    return course.states


FAR = LinkConditions(40_000_000, 10**10, 10**9)


def test_a_port_has_a_state_for_each_distinct_condition_and_a_step_for_each_change() -> None:
    near = replace(FAR, latency_ns=1_000_000)
    port = wan_ports(plan_gateways(changing(FAR, near, FAR), 1))["east", "west"]
    assert port.course is not None
    assert port.course.steps == ((0, 0), (10**9, 1), (2 * 10**9, 0))
    assert [state.netem.delay_ns for state in port.course.states] == [40_000_000, 1_000_000]
    assert PortState(port.netem, port.trunk, port.pair) == port.course.states[0]


def test_a_trunk_that_binds_later_is_planned_from_the_start() -> None:
    trunks = [state.trunk for state in states(changing(FAR, replace(FAR, rate_bps=10**9)))]
    assert trunks[0] is None
    assert trunks[1] is not None
    assert trunks[1].rate_bytes_per_s == 125_000_000


@given(st.lists(st.none() | st.integers(64, 10**11), min_size=2, max_size=5, unique=True), st.sampled_from([*Timers]))
def test_a_rate_of_node_pairs_that_changes_is_above_a_leaf_of_the_highest_rate(
    rates_bps: list[int | None], timers: Timers
) -> None:
    ever = [LinkConditions(1_000_000, None, rate_bps) for rate_bps in rates_bps]
    planned = states(changing(*ever), timers)
    above = [None if state.pair is None else state.pair.rate_bytes_per_s for state in planned]
    leaf = {state.netem.rate_bytes_per_s for state in planned}
    asked = [None if rate_bps is None else rate_bps // 8 for rate_bps in rates_bps]
    limited = [rate for rate in asked if rate is not None]
    if len({*asked}) == 1:
        assert (leaf, above) == ({asked[0]}, [None] * len(above))
    else:
        assert leaf == {None if None in asked else max(limited)}
        assert above == asked


def test_a_rate_of_node_pairs_that_does_not_change_is_the_leafs() -> None:
    planned = states(changing(FAR, replace(FAR, latency_ns=1_000_000), replace(FAR, up=False)))
    assert [(state.netem.rate_bytes_per_s, state.pair) for state in planned] == [(125_000_000, None)] * 3


def test_a_wan_ports_queue_is_sized_by_its_rate_latency_jitter_and_round_trip() -> None:
    topology = two_datacenters({"latency": "40ms", "jitter": "5ms", "rate": "20Gbit"}, hosts=(2, 2))
    # 45 ms in flight and 80 ms of queue at 20 Gbit/s are 2.5 Gbit, which are 206,406.9 frames of 1514 bytes.
    assert wan_ports(plan_gateways(topology, 1))["east", "west"].netem.limit_packets == 206_407


@example([LinkConditions(0, None), LinkConditions(0, 800 * 10**9)])
@given(st.lists(CONDITIONS, min_size=2, max_size=4, unique=True))
def test_a_queue_has_one_limit_that_suits_all_conditions(conditions: list[LinkConditions]) -> None:
    limits = {state.netem.limit_packets for state in states(changing(*conditions))}
    constant = [
        wan_ports(plan_gateways(replace(changing(each, FAR), wan=(WanLink(("east", "west"), each),)), 1))[
            "east", "west"
        ]
        for each in conditions
    ]
    assert len(limits) == 1
    assert limits.pop() >= max(port.netem.limit_packets for port in constant)


def test_every_leaf_of_a_link_that_changes_keeps_packets_in_order() -> None:
    unlimited = LinkConditions(40_000_000)
    jittery = LinkConditions(40_000_000, impairments=Impairments(jitter_ns=1_000_000))
    for state in states(changing(unlimited, FAR, jittery)):
        netem = state.netem
        assert netem.rate_bytes_per_s or netem.impairments.jitter_ns or netem.keeps_order
    constant = wan_ports(plan_gateways(two_datacenters({"latency": "40ms"}), 1))["east", "west"]
    assert not constant.netem.keeps_order


def test_a_link_that_is_down_loses_everything_without_any_packet_being_picked() -> None:
    topology = changing(FAR, replace(FAR, up=False))
    assert [state.netem.impairments.loss for state in states(topology)] == [0, 1]
    assert not plan_gateways(topology, 1).exact_packets


def test_impairments_that_come_later_count_from_the_start() -> None:
    assert plan_gateways(changing(FAR, replace(FAR, impairments=Impairments(loss=0.01))), 1).exact_packets


def test_super_packets_suit_the_slowest_rate_and_the_shortest_way() -> None:
    slow, near = replace(FAR, node_pair_rate_bps=10**8), replace(FAR, latency_ns=0)
    frames = [
        plan_gateways(changing(*conditions), 1, Timers.VIRTUAL).gateways[0].super_packet_frames
        for conditions in ((FAR, near), (FAR, slow))
    ]
    assert frames == [20, 2]


def test_ports_have_the_addresses_of_their_datacenter_and_host() -> None:
    east, west = plan_gateways(two_datacenters({"latency": "1ms"}, hosts=(1, 3)), 7).gateways
    assert [(port.host, port.host_address, port.host_mac, port.gateway_mac) for port in west.host_ports] == [
        (f"west-{host}", f"10.7.1.{host + 2}", f"02:01:07:01:00:0{host}", f"02:02:07:01:00:0{host}")
        for host in range(3)
    ]
    (there,), (back,) = east.wan_ports, west.wan_ports
    assert (there.mac, there.peer_mac) == (back.peer_mac, back.mac) == ("02:03:07:00:01:00", "02:03:07:01:00:00")
    assert (there.peer_gateway, there.peer_subnet, back.peer_gateway) == ("10.7.1.1", "10.7.1.0", "10.7.0.1")


def test_the_shortest_round_trip_of_a_link_that_changes_decides_how_long_packets_may_be() -> None:
    def frames(latency_ms: int, later_ms: int | None = None) -> list[int | None]:
        first = LinkConditions(latency_ms * 1_000_000, 10**9)
        course = None
        if later_ms is not None:
            course = course_of([(0, first), (10**9, replace(first, latency_ns=later_ms * 1_000_000))])
        topology = two_datacenters({"latency": "1ms"})
        (link,) = topology.wan
        changing = replace(topology, wan=(replace(link, conditions=first, courses=(course, course)),))
        return [gateway.super_packet_frames for gateway in plan_gateways(changing, 1, Timers.VIRTUAL).gateways]

    assert frames(80) != frames(1)
    assert frames(80, 1) == frames(1, 80) == frames(1)
