"""The conditions of a link are the same however they are written: resolved, simulated and asked of the kernel.

Each way says in its own words what constants say, or what the rows of a trace say: by rows or events, one direction at
a time, over constants that it hides. All that an experiment gets from a link has to be equal, to the byte.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.kernel.port_shape import PortShape, wan_port_shape
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.shared_rate import Timers

Values = dict[str, Any]
Phases = Sequence[tuple[int, Values]]
"""What a link is from each time in milliseconds on, the first at 0; each says the same fields."""
Written = tuple[Values, str]
"""What stands in ``wan`` or in an entry of ``links``, and the text of the trace that it names, if any."""

TRACE = "conditions"
BELOW = {"latency": "45ms", "rate": "3Mbit", "node_pair_rate": "2Mbit", "jitter": "0ms", "loss": "5%"}
"""Constants that a course hides."""
OTHER = {"latency": "15ms", "rate": "40Mbit"}
"""The other direction, where one alone has the conditions."""
MAHIMAHI = {
    "2400kbit": "".join(f"{5 * line}\n" for line in range(1, 401)),
    "12Mbit": "".join(f"{line}\n" for line in range(1, 2001)),
    "36Mbit": "".join(f"{line}\n" * 3 for line in range(1, 2001)),
}
"""Rates, and two seconds of a Mahimahi trace that has them in every 5 ms."""
LAST_MS = 2000


@st.composite
def conditions(draw: st.DrawFn) -> Values:
    """Conditions of which at least the rate is written."""
    drawn: Values = {"rate": draw(st.sampled_from(sorted(MAHIMAHI)))}
    latency_ms = draw(st.integers(0, 40))
    if latency_ms or draw(st.booleans()):
        drawn["latency"] = f"{latency_ms}ms"
    if draw(st.booleans()):
        drawn["node_pair_rate"] = draw(st.sampled_from(["1Mbit", "12Mbit", "unlimited"]))
    if draw(st.integers(0, 3)) == 0:
        drawn["loss"] = draw(st.sampled_from(["0%", "1%"]))
    if draw(st.integers(0, 3)) == 0:
        drawn["jitter"] = f"{draw(st.integers(0, latency_ms))}ms"
    return drawn


@st.composite
def phases(draw: st.DrawFn) -> Phases:
    """Latencies and rates over time; some follow themselves."""
    times_ms = [0, *sorted(draw(st.sets(st.integers(1, LAST_MS), min_size=1, max_size=4)))]
    values = st.fixed_dictionaries(
        {
            "latency": st.sampled_from(["0ms", "3ms", "40ms"]),
            "rate": st.sampled_from(["2400kbit", "12Mbit", "unlimited"]),
            "node_pair_rate": st.sampled_from(["1Mbit", "unlimited"]),
        }
    )
    return [(at_ms, draw(values)) for at_ms in times_ms]


def csv(course: Phases) -> str:
    names = list(course[0][1])
    lines = [["t_s", *names], *([f"{at_ms / 1e3}", *(row[name] for name in names)] for at_ms, row in course)]
    return "".join(f"{','.join(cells)}\n" for cells in lines)


def rows(values: Values, *times_s: int) -> str:
    """A trace that says the same at each of some times."""
    return csv([(1000 * at_s, values) for at_s in times_s])


def below(values: Values) -> Values:
    """Other constants of the same fields."""
    return {name: BELOW[name] for name in values}


def empty(values: Values) -> Values:
    return dict.fromkeys(values, "")


def without_rate(values: Values) -> Values:
    """What is written beside the rate; no loss where there is nothing."""
    return {"loss": "0%", **{name: value for name, value in values.items() if name != "rate"}}


CONSTANT: dict[str, Callable[[Values], Written]] = {
    "constants": lambda values: (values, ""),
    "a row": lambda values: ({**below(values), "trace": TRACE}, rows(values, 0)),
    "a row above nothing": lambda values: ({"trace": TRACE}, rows(values, 0)),
    "a row, anew and anew": lambda values: ({**below(values), "trace": TRACE, "loop": "3s"}, rows(values, 0)),
    "equal rows": lambda values: ({"trace": TRACE}, rows(values, 0, 1, 5)),
    "equal rows, anew and anew": lambda values: ({"trace": TRACE, "loop": True}, rows(values, 0, 1, 5)),
    "rows to an empty end": lambda values: (
        {"trace": TRACE, "loop": True},
        csv([(0, values), (500, values), (900, empty(values))]),
    ),
    "empty cells": lambda values: ({**values, "trace": TRACE}, rows(empty(values), 0, 2)),
    "a link that is up": lambda values: ({**values, "trace": TRACE}, "t_s,up\n0,true\n2,1\n"),
    "an event": lambda values: ({**below(values), "events": [{"at": "0s", **values}]}, ""),
    "an event for each field": lambda values: (
        {"events": [{"at": "0s", name: value} for name, value in reversed(values.items())]},
        "",
    ),
    "an event after the other": lambda values: (
        {**below(values), "events": [{"at": "0s", "for": "2s", **values}, {"at": "2s", **values}]},
        "",
    ),
    "events that change nothing": lambda values: (
        {**values, "events": [{"at": "1s", "down": False}, {"at": "1s", "for": "1s", **values}]},
        "",
    ),
    "no events": lambda values: ({**values, "events": []}, ""),
    "events above a trace": lambda values: (
        {"trace": TRACE, "events": [{"at": "0s", **values}]},
        csv([(0, below(values)), (700, values), (800, empty(values))]),
    ),
    "a trace beside events": lambda values: (
        {"trace": TRACE, "events": [{"at": "0s", "rate": values["rate"]}]},
        rows(without_rate(values), 0),
    ),
    "Mahimahi": lambda values: (
        {**values, "rate": "77Mbit", "trace": {"mahimahi": TRACE}},
        MAHIMAHI[values["rate"]],
    ),
    "Mahimahi, anew and anew": lambda values: (
        {**values, "rate": "unlimited", "trace": {"mahimahi": TRACE, "window": "10ms"}, "loop": True},
        MAHIMAHI[values["rate"]],
    ),
    "Mahimahi by one window": lambda values: (
        {**values, "trace": {"mahimahi": TRACE, "window": "10s"}, "loop": "5s"},
        MAHIMAHI[values["rate"]],
    ),
    "drawn as all of the constant": lambda values: (
        {**values, "generate": {"length": "9s", "diurnal": {"period": "3s", "low": "100%"}}},
        "",
    ),
}
"""Ways to write conditions that never change."""


def until_the_next(course: Phases) -> list[Values]:
    """An event for each phase, which ends with it."""
    ends_ms = [at_ms for at_ms, _ in course[1:]]
    lasting = [
        {"at": f"{at_ms}ms", "for": f"{end_ms - at_ms}ms", **values}
        for (at_ms, values), end_ms in zip(course, ends_ms, strict=False)
    ]
    at_ms, values = course[-1]
    return [*lasting, {"at": f"{at_ms}ms", **values}]


def event_for_each(course: Phases) -> list[Values]:
    return [{"at": f"{at_ms}ms", **values} for at_ms, values in course]


def seldom(course: Phases) -> str:
    """The rows after the first phase, with cells only where something is not as in the first."""
    constants = course[0][1]
    return csv([(at_ms, {**empty(row), **dict(row.items() - constants.items())}) for at_ms, row in course[1:]])


OVER_TIME: dict[str, Callable[[Phases], Written]] = {
    "rows": lambda course: ({**BELOW, "loss": "0%", "trace": TRACE}, csv(course)),
    "rows in between": lambda course: (
        {"trace": TRACE},
        csv([*course, *((course[-1][0] + later_ms, course[-1][1]) for later_ms in (1, 70))]),
    ),
    "rows from the first change on": lambda course: ({**course[0][1], "trace": TRACE}, seldom(course)),
    "events": lambda course: ({"events": event_for_each(course)}, ""),
    "events after constants": lambda course: ({**course[0][1], "events": event_for_each(course[1:])}, ""),
    "events that end": lambda course: ({**below(course[0][1]), "events": until_the_next(course)}, ""),
    "events that reach on": lambda course: (
        {"events": [*({"for": "100s", **each} for each in event_for_each(course)[:-1]), event_for_each(course)[-1]]},
        "",
    ),
    "rates as rows, latencies as events": lambda course: (
        {"trace": TRACE, "events": [{"at": f"{at_ms}ms", "latency": row["latency"]} for at_ms, row in course]},
        csv([(at_ms, {name: cell for name, cell in row.items() if name != "latency"}) for at_ms, row in course]),
    ),
}
"""Ways to write conditions that change."""

PLACES = ("wan", "between", "from")


def topology_at(place: str, written: Values) -> Values:
    """A topology with the conditions of all links, of both directions of one, or of one direction."""
    if place == "wan":
        return {"wan": written}
    if place == "between":
        return {"links": [{"between": ["west", "east"], **written}]}
    return {"wan": OTHER, "links": [{"from": "west", "to": "east", **written}]}


def named(course: Any, trace: str) -> Any:
    """The same course with another name for its trace."""
    if isinstance(course, dict):
        return {name: named(value, trace) for name, value in course.items()}
    return trace if course == TRACE else course


def point_of(topology: Values, traces: Mapping[str, str]) -> SweepPoint:
    """The sweep point of two pipelines of two stages over such a network of two datacenters."""
    return sweep_point(
        {
            "engine": "simulate",
            "topology": {"datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")], **topology},
            "compute": {"forward": "2ms", "backward": "4ms", "activation": "60kB", "gradient": "30kB"},
            "training": {"stages": 2, "pipelines": 2, "microbatches": 2, "iterations": 2},
            "variants": [{"name": "v", "schedule": "1f1b", "transport": {"connections": 2, "window": "64KiB"}}],
            "traces": {name: text for name, text in traces.items() if text},
        }
    )


def columns(point: SweepPoint) -> Iterator[tuple[str, bytes]]:
    """All that a simulation gives, column by column."""
    (variant,) = point.variants
    simulation = simulate_variant(point.topology, variant, 2, effects=effects_of(variant.transport))
    for each in fields(simulation.spans):
        yield each.name, np.ascontiguousarray(getattr(simulation.spans, each.name)).tobytes()
    for flow in simulation.traffic:
        yield f"{flow.source} to {flow.destination}", flow.times_ns.tobytes() + flow.wire_bytes.tobytes()


def asked_of_the_kernel(point: SweepPoint, timers: Timers) -> list[tuple[str, PortShape]]:
    """What each WAN port has before training begins: its trunk, its classes, and the leaves of node pairs."""
    return [
        (f"{gateway.datacenter} to {port.peer}", wan_port_shape(gateway, port))
        for gateway in plan_gateways(point.topology, 0, timers).gateways
        for port in gateway.wan_ports
    ]


def hold_equal(one: SweepPoint, other: SweepPoint) -> None:
    for timers in Timers:
        assert asked_of_the_kernel(one, timers) == asked_of_the_kernel(other, timers)
    assert dict(columns(one)) == dict(columns(other))


@examples(60, drawn_anew=400)
@given(conditions(), st.sampled_from(sorted(CONSTANT)), st.sampled_from(PLACES))
def test_conditions_that_never_change_are_a_constant_link(values: Values, way: str, place: str) -> None:
    course, text = CONSTANT[way](values)
    written, plain = (point_of(topology_at(place, each), {TRACE: text}) for each in (course, values))
    assert written.topology == plain.topology
    hold_equal(written, plain)


@examples(40, drawn_anew=400)
@given(conditions(), st.sampled_from(sorted(CONSTANT)), st.sampled_from(sorted(CONSTANT)))
def test_directions_that_are_alike_are_one_link_however_each_is_written(values: Values, there: str, back: str) -> None:
    (course, text), (course_back, text_back) = CONSTANT[there](values), CONSTANT[back](values)
    entries = [
        {"from": "east", "to": "west", **course},
        {"from": "west", "to": "east", **named(course_back, "back")},
    ]
    written = point_of({"links": entries}, {TRACE: text, "back": text_back})
    assert written.topology == point_of({"wan": values}, {}).topology


@examples(40, drawn_anew=400)
@given(phases(), st.sampled_from(sorted(OVER_TIME)), st.sampled_from(PLACES))
def test_rows_and_events_that_say_the_same_are_one_course(course: Phases, way: str, place: str) -> None:
    both = [OVER_TIME[each](course) for each in (way, "rows")]
    one, other = (point_of(topology_at(place, written), {TRACE: text}) for written, text in both)
    assert [*one.topology.wan[0].every_conditions()] == [*other.topology.wan[0].every_conditions()]
    hold_equal(one, other)


@examples(10, drawn_anew=100)
@given(phases())
def test_a_course_that_begins_anew_is_its_rows_again_and_again(course: Phases) -> None:
    period_ms = LAST_MS + 1
    again = [(at_ms + each * period_ms, values) for each in range(40) for at_ms, values in course]
    looped = {"wan": {"trace": TRACE, "loop": f"{period_ms}ms"}}
    hold_equal(point_of(looped, {TRACE: csv(course)}), point_of({"wan": {"trace": TRACE}}, {TRACE: csv(again)}))


@pytest.mark.parametrize(
    ("scale", "later"), [({"latency": 0}, {"latency": "9ms"}), ({"rate": 0.01}, {"rate": "12000001bit"})]
)
def test_changes_that_a_scale_takes_away_leave_a_constant_link(scale: Values, later: Values) -> None:
    constants = {"latency": "3ms", "rate": "12Mbit"}
    changing = {**constants, "events": [{"at": "1s", **later}]}
    written, plain = (point_of({"wan": wan, "scale": scale}, {}) for wan in (changing, constants))
    assert written.topology == plain.topology


def test_changes_that_dilation_takes_away_leave_a_constant_link() -> None:
    constants = {"latency": "3ms", "rate": "12Mbit"}
    changing = {**constants, "events": [{"at": "1s", "rate": "12000001bit"}]}
    written, plain = (point_of({"wan": wan}, {}).topology.dilated(10) for wan in (changing, constants))
    assert written == plain
