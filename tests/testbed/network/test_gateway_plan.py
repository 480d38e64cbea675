import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ground.impairments import UNIMPAIRED, Impairments
from testbed.network.gateway_plan import (
    FIRST_PAIR_CLASS,
    FarHosts,
    Gateway,
    GatewayPlan,
    HostPort,
    NetemPlan,
    SharedRate,
    WanPort,
    pair_class,
    source_class,
)
from testbed.network.topology import MAX_EMULATED_HOSTS_PER_DATACENTER

NETEMS = st.builds(
    NetemPlan,
    st.integers(0, 10**12),
    st.integers(1, 2**32 - 1),
    st.none() | st.integers(8, 10**12),
    st.builds(Impairments, st.integers(0, 10**12), st.floats(0, 1)),
)
NAMES = st.text(max_size=8)
SHARED = st.none() | st.builds(SharedRate, st.integers(8, 10**12), st.integers(1, 60 * 10**6))
INDICES = st.integers(0, 249)
FAR = st.lists(st.builds(FarHosts, INDICES, st.integers(1, 250), NETEMS), max_size=2).map(tuple)
HOST_PORTS = st.builds(HostPort, NAMES, INDICES, NAMES, NAMES, NAMES, INDICES, NETEMS, FAR, SHARED)
NAME_TUPLES = st.lists(NAMES, max_size=3).map(tuple)
WAN_PORTS = st.builds(WanPort, NAMES, NAMES, NAMES, NAMES, NAMES, SHARED, NAME_TUPLES, NAME_TUPLES, NETEMS)
GATEWAYS = st.builds(
    Gateway,
    NAMES,
    NAMES,
    NAMES,
    st.lists(HOST_PORTS, max_size=2).map(tuple),
    st.lists(WAN_PORTS, max_size=2).map(tuple),
    st.none() | st.integers(1, 45),
)
PLANS = st.builds(GatewayPlan, st.lists(GATEWAYS, max_size=3).map(tuple), st.booleans())


def with_delays(plan: GatewayPlan, delays_ns: list[int]) -> GatewayPlan:
    left = iter(delays_ns)
    return replace(
        plan,
        gateways=tuple(
            replace(
                gateway,
                wan_ports=tuple(
                    replace(port, netem=replace(port.netem, delay_ns=next(left))) for port in gateway.wan_ports
                ),
            )
            for gateway in plan.gateways
        ),
    )


def wan_netems(plan: GatewayPlan) -> list[NetemPlan]:
    return [port.netem for gateway in plan.gateways for port in gateway.wan_ports]


@given(PLANS)
def test_a_plan_written_as_json_reads_back_as_the_same_plan(plan: GatewayPlan) -> None:
    assert GatewayPlan.from_json(plan.to_json()) == plan


@given(PLANS)
def test_a_plan_is_written_as_json_that_any_reader_takes(plan: GatewayPlan) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert isinstance(json.loads(plan.to_json(), parse_constant=refuse), dict)


@given(PLANS, st.integers(0, 10**12))
def test_a_trim_takes_as_much_off_every_wan_delay_and_stops_at_zero(plan: GatewayPlan, trim_ns: int) -> None:
    trimmed = plan.with_less_wan_delay(trim_ns)
    delays_ns = [netem.delay_ns for netem in wan_netems(plan)]
    assert [netem.delay_ns for netem in wan_netems(trimmed)] == [max(0, delay_ns - trim_ns) for delay_ns in delays_ns]
    assert with_delays(trimmed, delays_ns) == plan


@given(PLANS)
def test_a_plan_without_impairments_differs_in_impairments_of_the_wan_alone(plan: GatewayPlan) -> None:
    calm = plan.without_impairments()
    for before, after in zip(wan_netems(plan), wan_netems(calm), strict=True):
        assert after == replace(before, impairments=UNIMPAIRED)
    assert [gateway.host_ports for gateway in calm.gateways] == [gateway.host_ports for gateway in plan.gateways]
    assert calm.exact_packets == plan.exact_packets


@given(st.integers(1, MAX_EMULATED_HOSTS_PER_DATACENTER), st.integers(1, MAX_EMULATED_HOSTS_PER_DATACENTER))
def test_pair_classes_are_consecutive_and_fit_a_minor_number(sources: int, destinations: int) -> None:
    classes = [
        pair_class(source, destination, destinations)
        for source in range(sources)
        for destination in range(destinations)
    ]
    assert classes == list(range(FIRST_PAIR_CLASS, FIRST_PAIR_CLASS + sources * destinations))
    assert classes[-1] < 0xFFFF


@given(INDICES, INDICES, INDICES, INDICES)
def test_every_host_of_a_testbed_has_a_source_class_of_its_own(one: int, host: int, other: int, peer: int) -> None:
    assert (source_class(one, host) == source_class(other, peer)) == ((one, host) == (other, peer))
    assert FIRST_PAIR_CLASS <= source_class(one, host) < 0xFFFF
