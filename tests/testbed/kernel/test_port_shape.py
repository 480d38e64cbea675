import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.kernel.node_pair_classifier import (
    INTRA_CLASS,
    node_pair_program,
    same_datacenter_program,
    source_host_program,
)
from wanbed.testbed.kernel.port_shape import (
    DEFAULT_CLASS,
    TRUNK_CLASS,
    UNSHAPED,
    UNSHAPED_BYTES_PER_S,
    PortShape,
    ShapedClass,
    describe,
    host_port_shape,
    wan_port_shape,
)
from wanbed.testbed.network.ethernet import FRAME_BYTES
from wanbed.testbed.network.gateway_plan import (
    FarHosts,
    Gateway,
    HostPort,
    NetemPlan,
    SharedRate,
    WanPort,
    pair_class,
    source_class,
)
from wanbed.testbed.network.shared_rate import MIN_BYTES_PER_S

NETEM = NetemPlan(delay_ns=40_000_000, limit_packets=2000, rate_bytes_per_s=10**7)
FAR = NetemPlan(delay_ns=0, limit_packets=1000)
TRUNK = SharedRate(125_000_000, 525)
TRUNKS = st.none() | st.builds(SharedRate, st.integers(MIN_BYTES_PER_S, 10**11), st.integers(1, 60 * 10**6))


def wan_port(trunk: SharedRate | None, sources: int = 1, destinations: int = 1) -> WanPort:
    return WanPort(
        peer="west",
        peer_gateway="10.1.1.1",
        peer_subnet="10.1.1.0",
        mac="02:03:01:00:01:00",
        peer_mac="02:03:01:01:00:00",
        trunk=trunk,
        sources=tuple(f"east-{number}" for number in range(sources)),
        destinations=tuple(f"west-{number}" for number in range(destinations)),
        netem=NETEM,
    )


def host_port(
    index: int, rate_bytes_per_s: int | None, shared: SharedRate | None = None, far: tuple[FarHosts, ...] = ()
) -> HostPort:
    intra = NetemPlan(50_000, 1000, rate_bytes_per_s)
    macs = ("02:01:01:00:00:00", "02:02:01:00:00:00")
    return HostPort(f"east-{index}", index, f"10.1.0.{index + 2}", *macs, 0, intra, far, shared)


def gateway(*ports: HostPort) -> Gateway:
    return Gateway("east", "10.1.0.1", "10.1.0.0", ports, ())


EAST = gateway()


@given(TRUNKS, st.integers(1, 5), st.integers(1, 5))
def test_every_node_pair_has_a_leaf_that_serialises_at_its_rate(
    trunk: SharedRate | None, sources: int, destinations: int
) -> None:
    shape = wan_port_shape(EAST, wan_port(trunk, sources, destinations))
    pairs = {each.minor: each.netem for each in shape.classes if each.minor != DEFAULT_CLASS}
    assert pairs == {
        pair_class(source, destination, destinations): NETEM
        for source in range(sources)
        for destination in range(destinations)
    }


def test_a_port_for_some_senders_has_the_leaves_of_their_pairs_by_the_same_numbers() -> None:
    port = wan_port(TRUNK, 3, 2)
    whole, part = wan_port_shape(EAST, port), wan_port_shape(EAST, port, ["east-1"])
    minors = {DEFAULT_CLASS, pair_class(1, 0, 2), pair_class(1, 1, 2)}
    assert part.classes == tuple(each for each in whole.classes if each.minor in minors)
    assert (part.trunk, part.classifier) == (whole.trunk, whole.classifier)


@given(st.builds(SharedRate, st.integers(MIN_BYTES_PER_S, 10**11), st.integers(1, 60 * 10**6)), st.integers(1, 5))
def test_node_pairs_borrow_their_rate_from_a_shared_trunk(trunk: SharedRate, pairs: int) -> None:
    shape = wan_port_shape(EAST, wan_port(trunk, pairs, 1))
    assert shape.trunk == trunk
    assert {each.guaranteed_bytes_per_s for each in shape.classes} == {MIN_BYTES_PER_S}
    assert {each.ceiling for each in shape.classes} == {trunk}


def test_pairs_take_turns_of_a_super_packet() -> None:
    assert wan_port_shape(EAST, wan_port(SharedRate(12_500_000, 243), 2)).quantum_bytes == 3037
    assert wan_port_shape(EAST, wan_port(SharedRate(125_000_000, 1049), 2)).quantum_bytes == 60_000
    assert wan_port_shape(EAST, wan_port(SharedRate(8, 60 * 10**6), 2)).quantum_bytes == FRAME_BYTES


def test_packets_of_no_node_pair_cross_the_same_wan() -> None:
    shape = wan_port_shape(EAST, wan_port(TRUNK, 2, 2))
    (rest,) = (each for each in shape.classes if each.minor == DEFAULT_CLASS)
    assert (rest.ceiling, rest.netem) == (shape.trunk, NETEM)


def test_wan_port_classifies_by_node_pair() -> None:
    shape = wan_port_shape(EAST, wan_port(TRUNK, 3, 2))
    assert shape.classifier == node_pair_program("10.1.0.0", 3, "10.1.1.0", 2)


def test_a_trunk_that_cannot_bind_has_no_bucket() -> None:
    shape = wan_port_shape(EAST, wan_port(None, 2, 2))
    assert shape.trunk == UNSHAPED
    for each in shape.classes:
        assert (each.guaranteed_bytes_per_s, each.ceiling) == (UNSHAPED_BYTES_PER_S, UNSHAPED)
        assert each.netem == NETEM


@given(TRUNKS, st.builds(SharedRate, st.integers(MIN_BYTES_PER_S, 10**11), st.integers(1, 60 * 10**6)))
def test_a_rate_of_node_pairs_above_their_leaves_is_the_ceiling_of_each(
    trunk: SharedRate | None, pair: SharedRate
) -> None:
    shape = wan_port_shape(EAST, replace(wan_port(trunk, 2, 2), pair=pair))
    assert {each.ceiling for each in shape.classes} == {pair}
    assert shape.trunk == (trunk or UNSHAPED)


def test_host_port_without_a_rate_delays_only_packets_of_its_datacenter() -> None:
    port = host_port(0, None)
    shape = host_port_shape(EAST, port)
    assert shape.trunk == UNSHAPED
    assert {each.minor: each.netem for each in shape.classes} == {DEFAULT_CLASS: None, INTRA_CLASS: port.intra}
    assert {each.ceiling for each in shape.classes} == {UNSHAPED}
    assert shape.classifier == same_datacenter_program("10.1.0.0")


def test_at_a_port_with_a_rate_every_other_host_has_a_leaf() -> None:
    slower = NetemPlan(0, 1000, 10**6)
    far = (FarHosts(1, 2, FAR), FarHosts(3, 1, slower))
    ports = [host_port(index, 10**6, TRUNK, far) for index in range(3)]
    shape = host_port_shape(gateway(*ports), ports[1])
    assert {each.minor: each.netem for each in shape.classes} == {
        DEFAULT_CLASS: None,
        source_class(0, 0): ports[1].intra,
        source_class(0, 2): ports[1].intra,
        source_class(1, 0): FAR,
        source_class(1, 1): FAR,
        source_class(3, 0): slower,
    }
    assert shape.trunk == TRUNK
    assert {each.guaranteed_bytes_per_s for each in shape.classes} == {MIN_BYTES_PER_S}
    assert shape.classifier == source_host_program("10.1.0.0")


def test_a_port_that_its_senders_cannot_exceed_together_has_no_bucket() -> None:
    ports = [host_port(index, 10**6) for index in range(2)]
    assert host_port_shape(gateway(*ports), ports[0]).trunk == UNSHAPED


@given(TRUNKS, st.integers(1, 5), st.integers(1, 5))
def test_classes_stand_in_ascending_order_and_none_has_the_trunks_number(
    trunk: SharedRate | None, sources: int, destinations: int
) -> None:
    ports = [host_port(index, 10**6, trunk, (FarHosts(1, destinations, FAR),)) for index in range(sources)]
    wan, host = wan_port(trunk, sources, destinations), ports[0]
    for shape in (wan_port_shape(EAST, wan), host_port_shape(gateway(*ports), host)):
        minors = [each.minor for each in shape.classes]
        assert minors == sorted(set(minors))
        assert TRUNK_CLASS not in minors


def test_description_lists_equal_classes_once() -> None:
    described = describe(wan_port_shape(EAST, wan_port(TRUNK, 2, 2)))
    netem = {"delay_ns": 40_000_000, "jitter_ns": 0, "loss": 0.0, "limit_packets": 2000, "rate_bytes_per_s": 10**7}
    assert NETEM.document() == netem
    alike = {"guaranteed_bytes_per_s": 8, "ceiling_bytes_per_s": 125_000_000, "netem": netem}
    assert described == {
        "htb_trunk_bytes_per_s": 125_000_000,
        "htb_burst_us": 525,
        "classes": [{"classes": "1:2", **alike}, {"classes": "1:10 to 1:13", **alike}],
    }


def test_a_description_names_no_class_that_is_not_there() -> None:
    described = describe(wan_port_shape(EAST, wan_port(None, 1, 2)))
    assert [entry["classes"] for entry in described["classes"]] == ["1:2", "1:10 to 1:11"]


def test_a_class_without_netem_is_described_as_such() -> None:
    trunk = SharedRate(1000, 10)
    shape = PortShape(trunk, (ShapedClass(DEFAULT_CLASS, 10, trunk, None),), b"")
    described = {"classes": "1:2", "guaranteed_bytes_per_s": 10, "ceiling_bytes_per_s": 1000, "netem": None}
    assert describe(shape)["classes"] == [described]
    own_bucket = replace(shape, classes=(ShapedClass(DEFAULT_CLASS, 10, SharedRate(1000, 7), None),))
    assert describe(own_bucket)["classes"] == [{**described, "ceiling_burst_us": 7}]


@given(TRUNKS, st.integers(1, 3), st.integers(1, 3))
def test_a_description_is_plain_json(trunk: SharedRate | None, sources: int, destinations: int) -> None:
    described = describe(wan_port_shape(EAST, wan_port(trunk, sources, destinations)))
    assert json.loads(json.dumps(described)) == described


def test_a_trunk_that_changes_has_the_quantum_of_its_fastest_rate_at_any_time() -> None:
    fast, slow = SharedRate(80_000_000, 500), SharedRate(8_000_000, 500)
    changing = [PortShape(trunk, (), b"", fastest=fast).quantum_bytes for trunk in (slow, fast)]
    assert changing == [40_000, 40_000]
    assert PortShape(slow, (), b"").quantum_bytes == 4_000
