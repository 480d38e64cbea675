import json
from dataclasses import replace
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.impairments import UNIMPAIRED, Impairments
from wanbed.testbed.network.gateway_plan import (
    FIRST_PAIR_CLASS,
    FarHosts,
    Gateway,
    GatewayPlan,
    HostPort,
    NetemPlan,
    PortCourse,
    PortState,
    SharedRate,
    WanPort,
    pair_class,
    source_class,
)
from wanbed.testbed.network.topology import MAX_EMULATED_HOSTS_PER_DATACENTER

NETEMS = st.builds(
    NetemPlan,
    st.integers(0, 10**12),
    st.integers(1, 2**32 - 1),
    st.none() | st.integers(8, 10**12),
    st.builds(Impairments, st.integers(0, 10**12), st.floats(0, 1)),
    st.booleans(),
)
NAMES = st.text(max_size=8)
SHARED = st.none() | st.builds(SharedRate, st.integers(8, 10**12), st.integers(1, 60 * 10**6))
INDICES = st.integers(0, 249)
FAR = st.lists(st.builds(FarHosts, INDICES, st.integers(1, 250), NETEMS), max_size=2).map(tuple)
HOST_PORTS = st.builds(HostPort, NAMES, INDICES, NAMES, NAMES, NAMES, INDICES, NETEMS, FAR, SHARED)
NAME_TUPLES = st.lists(NAMES, max_size=3).map(tuple)
STATES = st.lists(st.builds(PortState, NETEMS, SHARED, SHARED), min_size=2, max_size=3).map(tuple)


@st.composite
def port_courses(draw: st.DrawFn) -> PortCourse:
    states = draw(STATES)
    times_ns = [0, *sorted(draw(st.sets(st.integers(1, 1000), max_size=5)))]
    steps = tuple((at_ns, draw(st.integers(0, len(states) - 1))) for at_ns in times_ns)
    return PortCourse(states, steps, draw(st.none() | st.integers(1001, 2000)))


PORT = (NAMES, NAMES, NAMES, NAMES, NAMES, SHARED, NAME_TUPLES, NAME_TUPLES, NETEMS)
WAN_PORTS = st.builds(WanPort, *PORT)
CHANGING_PORTS = st.builds(WanPort, *PORT, port_courses(), SHARED)


def plans(wan_ports: st.SearchStrategy[WanPort]) -> st.SearchStrategy[GatewayPlan]:
    ports = (st.lists(HOST_PORTS, max_size=2).map(tuple), st.lists(wan_ports, max_size=2).map(tuple))
    gateways = st.builds(Gateway, NAMES, NAMES, NAMES, *ports, st.none() | st.integers(1, 45))
    return st.builds(GatewayPlan, st.lists(gateways, max_size=3).map(tuple), st.booleans())


PLANS = plans(WAN_PORTS)
CHANGING_PLANS = plans(WAN_PORTS | CHANGING_PORTS)


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


@given(CHANGING_PLANS)
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


@given(port_courses())
def test_a_course_yields_what_it_changes_to_and_nothing_twice(course: PortCourse) -> None:
    previous_ns, previous = 0, course.at(0)
    for at_ns, state in islice(course.changes(), 20):
        assert at_ns > previous_ns
        assert course.at(at_ns - 1) == previous
        assert course.at(at_ns) == state
        previous_ns, previous = at_ns, state


@given(CHANGING_PLANS, st.integers(0, 5000))
def test_a_plan_at_a_time_has_the_ports_as_they_are_then_and_keeps_their_courses(plan: GatewayPlan, at_ns: int) -> None:
    then = plan.at(at_ns)
    for gateway, before in zip(then.gateways, plan.gateways, strict=True):
        for port, as_planned in zip(gateway.wan_ports, before.wan_ports, strict=True):
            assert port.course == as_planned.course
            state = (
                PortState(as_planned.netem, as_planned.trunk, as_planned.pair)
                if port.course is None
                else port.course.at(at_ns)
            )
            assert PortState(port.netem, port.trunk, port.pair) == state


def test_the_trim_applies_to_every_state_of_a_course() -> None:
    states = tuple(PortState(NetemPlan(delay_ns, 1000), None) for delay_ns in (40, 10, 2))
    port = WanPort("west", "", "", "", "", None, (), (), states[0].netem, PortCourse(states, ((0, 0), (5, 1), (9, 2))))
    plan = GatewayPlan((Gateway("east", "", "", (), (port,)),), exact_packets=False).with_less_wan_delay(3)
    course = plan.gateways[0].wan_ports[0].course
    assert course is not None
    assert [state.netem.delay_ns for state in course.states] == [37, 7, 0]


def test_a_leaf_is_written_with_its_impairments_and_its_order_where_it_has_to_be_told() -> None:
    leaf = NetemPlan(5, 1000, 125, Impairments(jitter_ns=2, loss=0.5))
    document = {"delay_ns": 5, "limit_packets": 1000, "rate_bytes_per_s": 125, "jitter_ns": 2, "loss": 0.5}
    assert leaf.document() == document
    assert replace(leaf, keeps_order=True).document() == {**document, "keeps_order": True}


def test_node_pairs_are_numbered_row_by_row_from_16() -> None:
    assert [pair_class(source, destination, 3) for source in range(2) for destination in range(3)] == [*range(16, 22)]
    assert [source_class(0, 0), source_class(0, 255), source_class(1, 0)] == [16, 271, 272]


def test_a_port_has_the_state_of_its_last_step_and_begins_anew_with_its_period() -> None:
    states = tuple(PortState(NetemPlan(delay_ns, 1000), None) for delay_ns in range(3))
    steps = ((0, 0), (5, 2), (8, 1))
    once, again = PortCourse(states, steps), PortCourse(states, steps, 10)
    assert [once.at(time_ns).netem.delay_ns for time_ns in (0, 4, 5, 7, 8, 99)] == [0, 0, 2, 2, 1, 1]
    assert [again.at(time_ns).netem.delay_ns for time_ns in (9, 10, 14, 15, 18, 20)] == [1, 0, 0, 2, 1, 0]
    assert [(at_ns, state.netem.delay_ns) for at_ns, state in once.changes()] == [(5, 2), (8, 1)]
    assert [(at_ns, state.netem.delay_ns) for at_ns, state in islice(again.changes(), 5)] == [
        *((5, 2), (8, 1), (10, 0)),
        *((15, 2), (18, 1)),
    ]
    assert list(PortCourse(states, ((0, 1),), 10).changes()) == []
    longer = again.changed(lambda netem: replace(netem, delay_ns=netem.delay_ns + 7))
    assert [state.netem.delay_ns for state in longer.states] == [7, 8, 9]
    assert (longer.steps, longer.period_ns) == (steps, 10)
