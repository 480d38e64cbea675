"""How changes of a link are written, and that they are written again as they were."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from wanbed.ground.strict_model import InputError, StrictModel, parse_model
from wanbed.testbed.network.links.over_time.course_spec import (
    MAX_PATH_CHARACTERS,
    EventSpec,
    Loop,
    TraceSpec,
    WrittenTrace,
)

MS = 10**6


class Written(StrictModel):
    """Holds what a link has of these."""

    trace: WrittenTrace | None = None
    loop: Loop = False


def parsed(**given: Any) -> Written:
    return parse_model(Written, given, "wan")


def fault(**given: Any) -> str:
    with pytest.raises(InputError) as caught:
        parsed(**given)
    return str(caught.value)


def trace(written: object) -> TraceSpec:
    found = parsed(trace=written).trace
    assert found is not None
    return found


def test_a_path_stands_for_a_csv_file() -> None:
    assert trace("drift.csv") == trace({"csv": "drift.csv"})
    assert (trace("drift.csv").file, trace("drift.csv").key) == ("drift.csv", "drift.csv")
    assert parsed(trace="drift.csv").model_dump()["trace"] == "drift.csv"


def test_a_mahimahi_trace_has_a_window_of_100_ms_unless_it_is_given() -> None:
    default, given = trace({"mahimahi": "a.down"}), trace({"mahimahi": "a.down", "window": "10ms"})
    assert (default.window, given.window) == (100 * MS, 10 * MS)
    assert (default.file, default.key) == ("a.down", "a.down (Mahimahi, 100ms)")
    assert given.key != default.key
    assert given.model_dump() == {"mahimahi": "a.down", "window": "10ms"}
    assert trace(given.model_dump()) == given
    assert "9ms is below 10ms" in fault(trace={"mahimahi": "a.down", "window": "9ms"})


@pytest.mark.parametrize("written", [{}, {"csv": "a.csv", "mahimahi": "b"}])
def test_a_trace_is_one_file(written: object) -> None:
    assert "give either the path of a CSV file or mahimahi" in fault(trace=written)


def test_a_window_goes_with_mahimahi_only() -> None:
    assert "window goes with mahimahi" in fault(trace={"csv": "a.csv", "window": "100ms"})


def test_a_path_has_up_to_4095_characters_that_can_be_seen() -> None:
    longest = "a" * MAX_PATH_CHARACTERS
    assert trace(longest).file == longest
    assert trace({"mahimahi": " a "}).file == " a "
    assert "more than 4095 characters" in fault(trace=longest + "a")
    for written in ("", " ", "a\nb", "a\x00"):
        assert "is no path" in fault(trace=written)
        assert "is no path" in fault(trace={"mahimahi": written})
    assert "is no path" in fault(trace={"csv": 3})
    assert "is no trace" in fault(trace=3)


def test_a_loop_is_a_yes_or_no_or_a_period() -> None:
    for written, loop in ((False, False), (True, True), ("90s", 90 * 10**9), ("1ms", MS)):
        found = parsed(loop=written)
        assert (found.loop, type(found.loop)) == (loop, type(loop))
        assert found.model_dump()["loop"] == written
    assert "is no period" in fault(loop="0s")
    assert "loop" in fault(loop="never")


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
