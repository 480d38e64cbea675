"""What a section ``generate`` may say: limits from both sides, and which fields of the link it changes."""

from typing import Any

import pytest

from wanbed.ground.strict_model import InputError, parse_model
from wanbed.testbed.network.links.over_time.generate_spec import GenerateSpec

OUTAGES = {"outages": {"mtbf": "60s", "mttr": "2s"}}


def parsed(**given: Any) -> GenerateSpec:
    return parse_model(GenerateSpec, {"length": "120s", **OUTAGES, **given}, "generate")


def fault(**given: Any) -> str:
    with pytest.raises(InputError) as caught:
        parsed(**given)
    return str(caught.value)


def test_a_step_is_a_second_unless_it_is_given_and_10_ms_at_least() -> None:
    assert parsed().step == 10**9
    assert parsed(step="10ms").step == 10**7
    assert "9ms is below 10ms" in fault(step="9ms")


def test_a_length_is_a_step_at_least_and_a_hundred_thousand_at_most() -> None:
    assert parsed(length="2s", step="2s").length == 2 * 10**9
    assert "1s is shorter than a step" in fault(length="1s", step="2s")
    assert parsed(length="1000s", step="10ms").length == 10**12
    assert "more than 100000 steps of 10ms" in fault(length="1000.01s", step="10ms")


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
    assert "it is zero: give more" in fault(**given)


def test_levels_are_two_to_a_hundred() -> None:
    def levels(count: int) -> dict[str, Any]:
        return {"markov": {"levels": ["50%"] * count, "stay": "1s"}}

    for count in (2, 100):
        markov = parsed(**levels(count)).markov
        assert markov is not None
        assert len(markov.levels) == count
    for count in (1, 101):
        assert "levels" in fault(**levels(count))


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
