"""How figures and changes of a link are written: limits from both sides, and that they are written back unchanged."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import StrictModel, parse_model
from wanbed.testbed.network.links.link_spec import (
    MAX_PATH_CHARACTERS,
    EventSpec,
    GenerateSpec,
    Loop,
    TraceSpec,
    WrittenTrace,
)

MS = 10**6


class Written(StrictModel):
    """Holds what a link has of these."""

    trace: WrittenTrace | None = None
    loop: Loop = False


def written_link(**given: Any) -> Written:
    return parse_model(Written, given, "wan")


def refusal_of_written_link(**given: Any) -> str:
    return refused(lambda: written_link(**given))


def trace(written: object) -> TraceSpec:
    found = written_link(trace=written).trace
    assert found is not None
    return found


def test_a_path_stands_for_a_csv_file() -> None:
    assert trace("drift.csv") == trace({"csv": "drift.csv"})
    assert (trace("drift.csv").file, trace("drift.csv").key) == ("drift.csv", "drift.csv")
    assert written_link(trace="drift.csv").model_dump()["trace"] == "drift.csv"


def test_a_mahimahi_trace_has_a_window_of_100_ms_unless_it_is_given() -> None:
    default, given = trace({"mahimahi": "a.down"}), trace({"mahimahi": "a.down", "window": "10ms"})
    assert (default.window, given.window) == (100 * MS, 10 * MS)
    assert (default.file, default.key) == ("a.down", "a.down (Mahimahi, 100ms)")
    assert given.key != default.key
    assert given.model_dump() == {"mahimahi": "a.down", "window": "10ms"}
    assert trace(given.model_dump()) == given
    assert "9ms is below 10ms" in refusal_of_written_link(trace={"mahimahi": "a.down", "window": "9ms"})


@pytest.mark.parametrize("written", [{}, {"csv": "a.csv", "mahimahi": "b"}])
def test_a_trace_is_one_file(written: object) -> None:
    assert "give either the path of a CSV file or mahimahi" in refusal_of_written_link(trace=written)


def test_a_window_goes_with_mahimahi_only() -> None:
    assert "window goes with mahimahi" in refusal_of_written_link(trace={"csv": "a.csv", "window": "100ms"})


def test_a_path_has_up_to_4095_characters_that_can_be_seen() -> None:
    longest = "a" * MAX_PATH_CHARACTERS
    assert trace(longest).file == longest
    assert trace({"mahimahi": " a "}).file == " a "
    assert "more than 4095 characters" in refusal_of_written_link(trace=longest + "a")
    for written in ("", " ", "a\nb", "a\x00"):
        assert "is no path" in refusal_of_written_link(trace=written)
        assert "is no path" in refusal_of_written_link(trace={"mahimahi": written})
    assert "is no path" in refusal_of_written_link(trace={"csv": 3})
    assert "is no trace" in refusal_of_written_link(trace=3)


def test_a_loop_is_a_yes_or_no_or_a_period() -> None:
    for written, loop in ((False, False), (True, True), ("90s", 90 * 10**9), ("1ms", MS)):
        found = written_link(loop=written)
        assert (found.loop, type(found.loop)) == (loop, type(loop))
        assert found.model_dump()["loop"] == written
    assert "is no period" in refusal_of_written_link(loop="0s")
    assert "loop" in refusal_of_written_link(loop="never")


def event(**given: Any) -> EventSpec:
    return parse_model(EventSpec, {"at": "30s", **given}, "events")


def test_an_event_changes_what_is_written_and_nothing_else() -> None:
    found = event(rate="unlimited", latency="0s")
    assert found.fields == ("latency", "rate")
    assert [found.value(name) for name in found.fields] == [0, None]
    assert event(loss="1%", rate="1Gbit").fields == ("rate", "loss")


def test_a_link_that_is_down_is_not_up() -> None:
    for down in (True, False):
        found = event(down=down)
        assert found.fields == ("up",)
        assert found.value("up") is not down


@pytest.mark.parametrize(
    "written",
    [
        {"at": "30s", "down": True},
        {"at": "30s", "for": "5s", "down": True},
        {"at": "0s", "for": "1ms", "rate": "1Gbit", "latency": "0s"},
        {"at": "1min", "down": False, "loss": "1%"},
    ],
)
def test_an_event_is_written_again_with_the_fields_that_it_had(written: dict[str, Any]) -> None:
    found = event(**written)
    for by_alias in (True, False):
        again = found.model_dump(by_alias=by_alias)
        assert set(again) == set(written)
        assert parse_model(EventSpec, TypeAdapter(dict[str, Any]).validate_python(again), "events") == found


def test_an_event_of_no_time_or_without_a_change_is_refused() -> None:
    with pytest.raises(InputError, match="for: 0s is no time"):
        event(**{"for": "0s", "down": True})
    assert event(**{"for": "1ns", "down": True}).lasts == 1
    with pytest.raises(InputError, match="it changes nothing: give any of latency, rate"):
        event(**{"for": "1s"})


OUTAGES = {"outages": {"mtbf": "60s", "mttr": "2s"}}


def generated(**given: Any) -> GenerateSpec:
    return parse_model(GenerateSpec, {"length": "120s", **OUTAGES, **given}, "generate")


def refusal_of_generated(**given: Any) -> str:
    return refused(lambda: generated(**given))


def test_a_step_is_a_second_unless_it_is_given_and_10_ms_at_least() -> None:
    assert generated().step == 10**9
    assert generated(step="10ms").step == 10**7
    assert "9ms is below 10ms" in refusal_of_generated(step="9ms")


def test_a_length_is_a_step_at_least_and_a_hundred_thousand_at_most() -> None:
    assert generated(length="2s", step="2s").length == 2 * 10**9
    assert "1s is shorter than a step" in refusal_of_generated(length="1s", step="2s")
    assert generated(length="1000s", step="10ms").length == 10**12
    assert "more than 100000 steps of 10ms" in refusal_of_generated(length="1000.01s", step="10ms")


@pytest.mark.parametrize(
    "given",
    [
        {"length": "0s"},
        {"step": "0s"},
        {"diurnal": {"period": "0s", "low": "40%"}},
        {"diurnal": {"period": "1s", "low": "0%"}},
        {"markov": {"levels": ["100%", "0%"], "stay": "1s"}},
        {"markov": {"levels": ["100%", "50%"], "stay": "0s"}},
        {"latency_steps": {"every": "0s", "up_to": "1ms"}},
        {"latency_steps": {"every": "1s", "up_to": "0s"}},
        {"outages": {"mtbf": "0s", "mttr": "1s"}},
        {"outages": {"mtbf": "1s", "mttr": "0s"}},
    ],
)
def test_nothing_that_is_drawn_is_zero(given: dict[str, Any]) -> None:
    assert "it is zero: give more" in refusal_of_generated(**given)


def test_levels_are_two_to_a_hundred() -> None:
    def levels(count: int) -> dict[str, Any]:
        return {"markov": {"levels": ["50%"] * count, "stay": "1s"}}

    for count in (2, 100):
        markov = generated(**levels(count)).markov
        assert markov is not None
        assert len(markov.levels) == count
    for count in (1, 101):
        assert "levels" in refusal_of_generated(**levels(count))


def test_something_is_drawn() -> None:
    with pytest.raises(InputError, match="nothing is drawn: give any of"):
        parse_model(GenerateSpec, {"length": "120s"}, "generate")


def test_each_kind_changes_fields_of_its_own() -> None:
    day, levels = {"diurnal": {"period": "1s", "low": "50%"}}, {"markov": {"levels": ["1%", "2%"], "stay": "1s"}}
    steps = {"latency_steps": {"every": "1s", "up_to": "1ms"}}
    rates = {"rate", "node_pair_rate"}

    def alone(given: dict[str, Any]) -> tuple[tuple[str, ...], set[str]]:
        spec = parse_model(GenerateSpec, {"length": "120s", **given}, "generate")
        return spec.drawn, set(spec.fields)

    assert alone(day) == (("diurnal",), rates)
    assert alone(levels) == (("markov",), rates)
    assert alone(steps) == (("latency_steps",), {"latency"})
    assert alone(OUTAGES) == (("outages",), {"up"})
    assert alone({**OUTAGES, **steps, **levels, **day}) == (
        ("diurnal", "markov", "latency_steps", "outages"),
        rates | {"latency", "up"},
    )
