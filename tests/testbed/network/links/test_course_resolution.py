"""How a link changes follows from its constants, and above them trace, generator and events."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.ground.strict_model import parse_model
from wanbed.netem_profiles.traces import csv_trace
from wanbed.testbed.network.links.wan_link import LinkCourse
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

MS, S = 10**6, 10**9
GBIT = 10**9
WAN = {"latency": "10ms", "rate": "10Gbit"}


def resolved(*, wan: dict[str, Any] | None = None, seed: int = 0, trace: str = "", **topology: Any) -> Topology:
    names = topology.pop("names", ("east", "west"))
    document = {
        "datacenters": [{"name": name, "hosts": 1} for name in names],
        "wan": {**WAN, **(wan or {})},
        **topology,
    }
    spec = parse_model(TopologySpec, document, "file")
    return resolve_topology(spec, None, {"f.csv": csv_trace(trace, "f.csv", "f.csv")} if trace else {}, seed)


def course(**given: Any) -> LinkCourse:
    found = resolved(**given).course("east", "west")
    assert found is not None
    return found


def rates(found: LinkCourse, *times_s: float) -> list[float]:
    return [(found.at(round(time_s * S)).rate_bps or 0) / GBIT for time_s in times_s]


def refusal(**given: Any) -> str:
    return refused(lambda: resolved(**given))


def test_an_event_ends_with_its_time_and_one_without_lasts() -> None:
    events = [{"at": "30s", "for": "5s", "down": True}, {"at": "1min", "rate": "1Gbit"}]
    found = course(wan={"events": events})
    assert [found.at(time_s * S).up for time_s in (29, 30, 34, 35)] == [True, False, False, True]
    assert rates(found, 59, 60, 9999) == [10, 1, 1]
    assert (found.source, found.synthetic) == ("events", False)


def test_of_events_that_overlap_the_later_one_holds_and_the_earlier_one_comes_back() -> None:
    events = [{"at": "30s", "for": "60s", "rate": "2Gbit"}, {"at": "50s", "for": "10s", "rate": "1Gbit"}]
    assert rates(course(wan={"events": events}), 29, 30, 50, 59, 60, 89, 90) == [10, 2, 1, 1, 2, 2, 10]


def test_two_events_on_one_field_at_one_time_are_refused() -> None:
    events = [{"at": "30s", "rate": "2Gbit"}, {"at": "30s", "latency": "1ms", "rate": "1Gbit"}]
    assert refusal(wan={"events": events}).startswith("topology.wan.events.1.rate: event 0 sets it at 30s as well")


def test_a_trace_keeps_the_constant_where_it_has_no_cell_and_holds_its_last_row() -> None:
    found = course(wan={"trace": "f.csv"}, trace="t_s,rate,latency\n1,2Gbit,\n2,,30ms\n")
    assert rates(found, 0, 1, 2, 99) == [10, 2, 10, 10]
    assert [found.at(time_s * S).latency_ns // MS for time_s in (0, 1, 2)] == [10, 10, 30]


def test_a_trace_that_begins_anew_does_so_at_its_last_row_or_after_the_period() -> None:
    text = "t_s,rate\n0,1Gbit\n5,2Gbit\n10,1Gbit\n"
    at_its_end = course(wan={"trace": "f.csv", "loop": True}, trace=text)
    after_a_period = course(wan={"trace": "f.csv", "loop": "20s"}, trace=text)
    assert rates(at_its_end, 0, 5, 10, 15, 20) == [1, 2, 1, 2, 1]
    assert rates(after_a_period, 0, 5, 10, 15, 20, 25) == [1, 2, 1, 1, 1, 2]


def test_an_end_that_would_never_hold_is_refused_with_its_line() -> None:
    text = "t_s,rate\n0,1Gbit\n5,2Gbit\n"
    assert refusal(wan={"trace": "f.csv", "loop": True}, trace=text).startswith("f.csv:3: with loop: true the last row")
    assert refusal(wan={"trace": "f.csv", "loop": "5s"}, trace=text).startswith("f.csv:3: loop: 5s ends before")


def test_a_jitter_above_the_latency_is_refused_with_its_line() -> None:
    text = "t_s,jitter\n0,1ms\n5,11ms\n"
    assert refusal(wan={"trace": "f.csv"}, trace=text).startswith("f.csv:3: the jitter of 11ms is above the latency")


def test_a_jitter_above_the_latency_at_any_time_is_refused() -> None:
    wan = {"jitter": "5ms", "events": [{"at": "30s", "latency": "1ms"}]}
    assert refusal(wan=wan).startswith("topology: the jitter between east and west at 30s, 5ms, is above")


def test_a_loop_beside_events_or_with_nothing_to_repeat_is_refused() -> None:
    text, events = "t_s,rate\n0,1Gbit\n5,\n", [{"at": "3s", "down": True, "for": "1s"}]
    assert "what begins anew stands alone" in refusal(
        wan={"trace": "f.csv", "loop": "10s", "events": events}, trace=text
    )
    assert "no trace and no generate here" in refusal(wan={"loop": True, "events": events})


def test_an_entry_of_a_link_replaces_what_wan_has_and_its_constants_hide_it() -> None:
    events = [{"at": "10s", "rate": "1Gbit", "latency": "20ms"}]
    topology = resolved(
        wan={"events": events},
        names=("east", "west", "north"),
        links=[
            {"between": ["east", "north"], "rate": "5Gbit"},
            {"from": "west", "to": "north", "events": [{"at": "20s", "for": "1s", "down": True}]},
            {"from": "north", "to": "west", "events": []},
        ],
    )

    def at(one: str, other: str, time_s: int) -> tuple[float, int, bool]:
        found = topology.course(one, other)
        now = topology.conditions(one, other) if found is None else found.at(time_s * S)
        return (now.rate_bps or 0) / GBIT, now.latency_ns // MS, now.up

    assert at("east", "west", 10) == at("west", "east", 10) == (1, 20, True)
    assert at("east", "north", 10) == (5, 20, True)
    assert [at("west", "north", time_s) for time_s in (10, 20)] == [(10, 10, True), (10, 10, False)]
    assert topology.course("north", "west") is None


def test_scale_and_dilation_change_every_condition() -> None:
    found = course(wan={"events": [{"at": "10s", "rate": "1Gbit"}]}, scale={"rate": 0.5, "latency": 2})
    assert rates(found, 0, 10) == [5, 0.5]
    dilated = resolved(wan={"events": [{"at": "10s", "rate": "1Gbit"}]}).dilated(4).course("east", "west")
    assert dilated is not None
    assert rates(dilated, 39, 40) == [2.5, 0.25]


ALL = {
    "length": "60s",
    "step": "500ms",
    "diurnal": {"period": "20s", "low": "40%"},
    "markov": {"levels": ["100%", "50%", "20%"], "stay": "5s"},
    "latency_steps": {"every": "5s", "up_to": "15ms"},
    "outages": {"mtbf": "10s", "mttr": "1s"},
}


@given(st.integers(0, 2**63 - 1))
def test_what_is_drawn_stays_within_its_bounds_and_is_called_synthetic(seed: int) -> None:
    found = course(wan={"generate": ALL}, seed=seed)
    assert found.synthetic
    assert found.source == "generated: diurnal, markov, latency steps, outages"
    for change in found.changes:
        assert change.at_ns % (500 * MS) == 0
        assert 0.08 * 10 * GBIT - 1 <= (change.conditions.rate_bps or 0) <= 10 * GBIT
        assert 10 * MS <= change.conditions.latency_ns <= 25 * MS
    assert found.first.up
    assert found.at(60 * S) == resolved().conditions("east", "west")
    assert all(one.at_ns < other.at_ns for one, other in pairwise(found.changes))


def test_draws_follow_from_the_seed_and_the_link_and_are_alike_in_both_directions() -> None:
    names = ("east", "west", "north")
    one, again, other = (resolved(wan={"generate": ALL}, names=names, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.course("east", "west") == one.course("west", "east")
    assert one.course("east", "west") != one.course("east", "north")
    assert one.course("east", "west") != other.course("east", "west")


def test_outages_last_and_come_as_often_as_they_are_drawn_to() -> None:
    generate = {"length": "10000s", "step": "100ms", "outages": {"mtbf": "20s", "mttr": "5s"}}
    found = course(wan={"generate": generate})
    spans = [(one.conditions.up, other.at_ns - one.at_ns) for one, other in pairwise(found.changes)]
    for up, mean_s in ((True, 20), (False, 5)):
        own = [length_ns / S for is_up, length_ns in spans if is_up is up]
        assert sum(own) / len(own) == pytest.approx(mean_s, rel=0.2)


def test_a_generator_begins_anew_after_its_length_or_a_longer_period() -> None:
    generate = {"length": "20s", "markov": {"levels": ["100%", "50%"], "stay": "3s"}}
    once = course(wan={"generate": generate})
    at_its_end, later = (course(wan={"generate": generate, "loop": loop}) for loop in (True, "30s"))
    within = [once.at(time_s * S) for time_s in range(20)]
    assert len(set(within)) == 2
    assert [at_its_end.at(time_s * S) for time_s in range(40)] == 2 * within
    constant = resolved().conditions("east", "west")
    assert [later.at(time_s * S) for time_s in range(60)] == 2 * (within + 10 * [constant])
    assert course(wan={"generate": generate, "loop": "20s"}).changes == at_its_end.changes
    assert refusal(wan={"generate": generate, "loop": "19s"}).startswith("topology.wan.loop: 19s is less than the 20s")
    assert "what begins anew stands alone" in refusal(
        wan={"generate": generate, "loop": True, "events": [{"at": "3s", "down": True, "for": "1s"}]}
    )


def test_constants_of_an_entry_hide_what_is_drawn_of_them_and_nothing_else() -> None:
    generate = {
        "length": "60s",
        "markov": {"levels": ["100%", "50%"], "stay": "3s"},
        "latency_steps": {"every": "5s", "up_to": "15ms"},
    }
    topology = resolved(wan={"generate": generate}, links=[{"between": ["east", "west"], "latency": "5ms"}])
    found = topology.course("east", "west")
    assert found is not None
    assert {change.conditions.latency_ns for change in found.changes} == {5 * MS}
    assert {change.conditions.rate_bps for change in found.changes} == {10 * GBIT, 5 * GBIT}


def test_events_lie_above_what_is_drawn_and_a_trace() -> None:
    generate = {"length": "60s", "latency_steps": {"every": "1s", "up_to": "15ms"}}
    events = [{"at": "20s", "for": "20s", "latency": "100ms", "rate": "1Gbit"}]
    text = "t_s,rate\n0,3Gbit\n25,2Gbit\n"
    found = course(wan={"trace": "f.csv", "generate": generate, "events": events}, trace=text)
    assert rates(found, 19, 20, 39, 40) == [3, 1, 1, 2]
    latencies_ms = [found.at(time_s * S).latency_ns / MS for time_s in range(60)]
    assert set(latencies_ms[20:40]) == {100}
    assert len(set(latencies_ms[:20])) > 5
    assert max(latencies_ms[:20] + latencies_ms[40:]) <= 25
    assert found.source == "f.csv + generated: latency steps + events"
    assert found.synthetic


def test_a_rate_is_drawn_on_only_where_there_is_one() -> None:
    generate = {"length": "60s", "diurnal": {"period": "20s", "low": "40%"}}
    assert refusal(wan={"rate": "unlimited", "generate": generate}).startswith(
        "topology.wan.generate.diurnal: the link"
    )


def test_a_trace_and_a_generator_do_not_give_one_field_both() -> None:
    generate = {"length": "60s", "diurnal": {"period": "20s", "low": "40%"}}
    text = refusal(wan={"trace": "f.csv", "generate": generate}, trace="t_s,rate\n0,1Gbit\n5,\n")
    assert text.startswith("topology.wan.generate: the trace f.csv gives rate already")


LATENCIES, RATES = ("1ms", "10ms", "25ms"), ("1Mbit", "10Gbit", "12Gbit")
SAME: dict[str, tuple[dict[str, Any], str]] = {
    "one row": ({"trace": "f.csv"}, "0,{latency},{rate}"),
    "equal rows": ({"trace": "f.csv"}, "0,{latency},{rate}\n5,{latency},{rate}\n9,{latency},{rate}"),
    "equal rows, anew and anew": ({"trace": "f.csv", "loop": True}, "0,{latency},{rate}\n5,{latency},{rate}"),
    "an event": ({"events": [{"at": "0s", "latency": "{latency}", "rate": "{rate}"}]}, ""),
    "two events": ({"events": [{"at": "0s", "latency": "{latency}"}, {"at": "0s", "rate": "{rate}"}]}, ""),
}
"""Ways to write conditions that never change: what stands in ``wan`` or an entry of ``links``, and a trace's rows."""


def filled(written: Any, **figures: str) -> Any:
    """The same with figures in the place of their names."""
    if isinstance(written, dict):
        return {name: filled(value, **figures) for name, value in written.items()}
    if isinstance(written, list):
        return [filled(each, **figures) for each in written]
    return written.format(**figures) if isinstance(written, str) else written


@given(st.sampled_from(sorted(SAME)), st.sampled_from(LATENCIES), st.sampled_from(RATES), st.booleans())
def test_what_holds_from_the_beginning_is_the_link_however_it_is_written(
    way: str, latency: str, rate: str, one_direction: bool
) -> None:
    course, rows = filled(list(SAME[way]), latency=latency, rate=rate)
    trace = f"t_s,latency,rate\n{rows}\n" if rows else ""
    ends = {"from": "east", "to": "west"} if one_direction else {"between": ["east", "west"]}
    plain = resolved(links=[{**ends, "latency": latency, "rate": rate}])
    assert resolved(links=[{**ends, **course}], trace=trace) == plain
    if not one_direction:
        assert resolved(wan=course, trace=trace) == plain


def test_a_link_that_is_down_from_the_beginning_for_ever_is_refused() -> None:
    assert refusal(wan={"events": [{"at": "0s", "down": True}]}).startswith("topology.wan: it is down from the")
