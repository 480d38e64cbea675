import json
from dataclasses import asdict

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.gateway_plan import Gateway, HostPort, NetemPlan, WanPort, pair_class
from testbed.qdiscs.node_pair_classifier import INTRA_CLASS, node_pair_program, same_datacenter_program
from testbed.qdiscs.port_shape import (
    DEFAULT_CLASS,
    MIN_BYTES_PER_S,
    TRUNK_CLASS,
    UNSHAPED_BYTES_PER_S,
    PortShape,
    ShapedClass,
    bytes_per_s,
    describe,
    host_port_shape,
    wan_port_shape,
)

NETEM = NetemPlan(delay_ns=40_000_000, jitter_ns=0, loss=0.0, limit_packets=2000)
EAST = Gateway("east", "10.1.0.1", "10.1.0.0", (), ())
RATES = st.none() | st.integers(1, 10**12)


def wan_port(rate_bps: int | None, pair_rate_bps: int | None, sources: int = 1, destinations: int = 1) -> WanPort:
    return WanPort(
        peer="west",
        peer_gateway="10.1.1.1",
        peer_subnet="10.1.1.0",
        mac="02:03:01:00:01:00",
        peer_mac="02:03:01:01:00:00",
        rate_bps=rate_bps,
        pair_rate_bps=pair_rate_bps,
        sources=tuple(f"east-{number}" for number in range(sources)),
        destinations=tuple(f"west-{number}" for number in range(destinations)),
        netem=NETEM,
    )


def host_port(rate_bps: int | None) -> HostPort:
    return HostPort(
        "east-0", 0, "10.1.0.2", "02:01:01:00:00:00", "02:02:01:00:00:00", rate_bps, NetemPlan(50_000, 0, 0.0, 1000)
    )


@pytest.mark.parametrize(
    ("rate_bps", "expected"), [(80, 10), (87, 10), (200_000_000, 25_000_000), (10**12, 125 * 10**9)]
)
def test_rates_are_kept_in_whole_bytes(rate_bps: int, expected: int) -> None:
    assert bytes_per_s(rate_bps) == expected


def test_a_rate_below_what_the_kernel_tells_apart_is_the_lowest_there_is() -> None:
    assert bytes_per_s(1) == bytes_per_s(63) == MIN_BYTES_PER_S


@given(RATES, RATES, st.integers(1, 20), st.integers(1, 20))
def test_guarantees_together_never_exceed_the_trunk(
    rate_bps: int | None, pair_rate_bps: int | None, sources: int, destinations: int
) -> None:
    # A class is guaranteed the lowest rate at least, so a trunk below that for each class is oversold.
    assume(bytes_per_s(rate_bps) >= MIN_BYTES_PER_S * (sources * destinations + 1))
    shape = wan_port_shape(EAST, wan_port(rate_bps, pair_rate_bps, sources, destinations))
    assert sum(each.guaranteed_bytes_per_s for each in shape.classes) <= shape.trunk_bytes_per_s


@given(RATES, RATES, st.integers(1, 5), st.integers(1, 5))
def test_every_pair_may_reach_its_cap_and_is_guaranteed_no_more(
    rate_bps: int | None, pair_rate_bps: int | None, sources: int, destinations: int
) -> None:
    shape = wan_port_shape(EAST, wan_port(rate_bps, pair_rate_bps, sources, destinations))
    pairs = {each.minor: each for each in shape.classes if each.minor != DEFAULT_CLASS}
    assert set(pairs) == {
        pair_class(source, destination, destinations)
        for source in range(sources)
        for destination in range(destinations)
    }
    for pair in pairs.values():
        assert pair.ceiling_bytes_per_s == bytes_per_s(pair_rate_bps)
        assert MIN_BYTES_PER_S <= pair.guaranteed_bytes_per_s <= pair.ceiling_bytes_per_s


def test_what_belongs_to_no_pair_crosses_the_same_wan_and_may_use_the_whole_trunk() -> None:
    shape = wan_port_shape(EAST, wan_port(10**9, 10**8, 2, 2))
    (rest,) = (each for each in shape.classes if each.minor == DEFAULT_CLASS)
    assert (rest.ceiling_bytes_per_s, rest.netem) == (shape.trunk_bytes_per_s, NETEM)


def test_a_wan_port_tells_its_node_pairs_apart() -> None:
    shape = wan_port_shape(EAST, wan_port(10**9, None, 3, 2))
    assert shape.classifier == node_pair_program("10.1.0.0", 3, "10.1.1.0", 2)


def test_without_a_rate_nothing_is_shaped_but_everything_is_delayed() -> None:
    shape = wan_port_shape(EAST, wan_port(None, None, 2, 2))
    assert shape.trunk_bytes_per_s == UNSHAPED_BYTES_PER_S
    assert {each.ceiling_bytes_per_s for each in shape.classes} == {UNSHAPED_BYTES_PER_S}
    assert {each.netem for each in shape.classes} == {NETEM}


@given(RATES)
def test_towards_a_host_only_what_comes_from_its_datacenter_is_delayed(rate_bps: int | None) -> None:
    port = host_port(rate_bps)
    shape = host_port_shape(EAST, port)
    assert {each.minor: each.netem for each in shape.classes} == {DEFAULT_CLASS: None, INTRA_CLASS: port.intra}
    assert {each.ceiling_bytes_per_s for each in shape.classes} == {shape.trunk_bytes_per_s} == {bytes_per_s(rate_bps)}
    assert shape.classifier == same_datacenter_program("10.1.0.0")


@given(st.integers(16 * MIN_BYTES_PER_S, 10**12))
def test_towards_a_host_both_kinds_of_traffic_share_its_rate(rate_bps: int) -> None:
    shape = host_port_shape(EAST, host_port(rate_bps))
    assert sum(each.guaranteed_bytes_per_s for each in shape.classes) <= shape.trunk_bytes_per_s


@given(RATES, RATES, st.integers(1, 5), st.integers(1, 5))
def test_classes_stand_in_ascending_order_and_none_has_the_trunks_number(
    rate_bps: int | None, pair_rate_bps: int | None, sources: int, destinations: int
) -> None:
    minors = [
        each.minor for each in wan_port_shape(EAST, wan_port(rate_bps, pair_rate_bps, sources, destinations)).classes
    ]
    assert minors == sorted(set(minors))
    assert TRUNK_CLASS not in minors


def test_a_description_tells_classes_that_are_alike_once() -> None:
    described = describe(wan_port_shape(EAST, wan_port(1_000_000_000, 200_000_000, 2, 2)))
    assert described == {
        "htb_trunk_bytes_per_s": 125_000_000,
        "classes": [
            {
                "classes": "1:2",
                "guaranteed_bytes_per_s": 25_000_000,
                "ceiling_bytes_per_s": 125_000_000,
                "netem": asdict(NETEM),
            },
            {
                "classes": "1:10 to 1:13",
                "guaranteed_bytes_per_s": 25_000_000,
                "ceiling_bytes_per_s": 25_000_000,
                "netem": asdict(NETEM),
            },
        ],
    }


def test_a_description_names_no_class_that_is_not_there() -> None:
    described = describe(wan_port_shape(EAST, wan_port(None, None, 1, 2)))
    assert [entry["classes"] for entry in described["classes"]] == ["1:2", "1:10 to 1:11"]


def test_a_class_without_netem_is_described_as_such() -> None:
    shape = PortShape(1000, (ShapedClass(DEFAULT_CLASS, 10, 1000, None),), b"")
    assert describe(shape)["classes"] == [
        {"classes": "1:2", "guaranteed_bytes_per_s": 10, "ceiling_bytes_per_s": 1000, "netem": None}
    ]


@given(RATES, RATES, st.integers(1, 3), st.integers(1, 3))
def test_a_description_is_plain_json(
    rate_bps: int | None, pair_rate_bps: int | None, sources: int, destinations: int
) -> None:
    described = describe(wan_port_shape(EAST, wan_port(rate_bps, pair_rate_bps, sources, destinations)))
    assert json.loads(json.dumps(described)) == described
