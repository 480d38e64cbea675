from typing import Any

import pytest

from wanbed.results.reading.validity import MachineLoad, Saturation


def facts(**load: float | None) -> dict[str, Any]:
    return {"machine_load": load}


@pytest.mark.parametrize(
    ("load", "mark"),
    [
        ({"saturated": 1.0, "network": 0.2}, "all cores 100 %"),
        ({"saturated": 0.11}, "all cores 11.0 %"),
        ({"saturated": 0.1, "network": 0.6}, ""),
        ({"saturated": 0.0, "network": 0.61}, "network core 61.0 %"),
        ({"saturated": None, "network": None}, ""),
        ({}, ""),
    ],
)
def test_the_thresholds_decide_what_is_marked(load: dict[str, float | None], mark: str) -> None:
    found = MachineLoad.of(facts(**load))
    assert (found.mark.replace("\u00a0", " "), found.saturated) == (mark, bool(mark))
    assert bool(found.sentence) == bool(mark)


@pytest.mark.parametrize("recorded", [{}, {"machine_load": None}, {"machine_load": {"saturated": "all"}}])
def test_a_trial_that_does_not_say_is_not_marked(recorded: dict[str, Any]) -> None:
    assert MachineLoad.of(recorded) == MachineLoad(None, None)


def test_of_several_repeats_the_busiest_is_reported_and_how_many_there_were() -> None:
    found = Saturation.of([facts(saturated=0.0), facts(saturated=0.4), facts(saturated=0.9)])
    assert (found.repeats, found.saturated) == (3, 2)
    assert found.mark.replace("\u00a0", " ") == "all cores 90.0 % in 2 of 3 repeats"
    assert Saturation.of([facts(saturated=0.9)]).mark.replace("\u00a0", " ") == "all cores 90.0 %"


def test_the_worst_repeat_is_a_saturated_one_even_if_another_was_busier() -> None:
    found = Saturation.of([facts(saturated=0.0, network=0.55), facts(saturated=0.2)])
    assert found.mark.replace("\u00a0", " ") == "all cores 20.0 % in 1 of 2 repeats"


def test_no_trial_is_not_saturated() -> None:
    assert Saturation.of([]).mark == ""
