from pathlib import Path

import pytest
import yaml

from studies.bad_days.day import Day, days
from wanbed.runner.planner.experiment_file import load_experiment


def resolved(day: Day, engine: str, folder: Path) -> list[dict[str, str]]:
    """The swept values of every sweep point of the day's experiment, as the loader resolves them."""
    file = folder / f"{day.ladder.name}.yaml"
    file.write_text(yaml.safe_dump(day.experiment(engine), sort_keys=False))
    return [dict(point.values) for point in load_experiment(file, []).points()]


@pytest.mark.parametrize("day", days(2), ids=lambda day: day.ladder.name)
def test_every_sweep_point_of_a_day_is_one_of_its_moments(day: Day, tmp_path: Path) -> None:
    points = resolved(day, "simulate", tmp_path)
    weather = [day.weather(point[day.path]) for point in points]
    assert len(weather) == len(day.values)
    steps = {each.severity for each in weather if each is not None}
    assert steps == set(range(len(day.ladder.steps)))


@pytest.mark.parametrize("day", days(4), ids=lambda day: day.ladder.name)
def test_virtual_time_runs_some_moments_of_one_step_and_the_calm_day(day: Day, tmp_path: Path) -> None:
    weather = [day.weather(point[day.path]) for point in resolved(day, "emulate", tmp_path)]
    bad = [each for each in weather if each is not None]
    assert {day.ladder.steps[each.severity] for each in bad} == {day.ladder.emulated}
    if bad[0].length_s is not None:
        assert len(bad) == 2
        assert weather.count(None) == 1


def test_moments_are_spread_over_an_iteration() -> None:
    (latency, *_) = days(4)
    mild = [value[0]["at"] for value, weather in latency.values if weather is not None and weather.severity == 0]
    assert mild == ["5.0s", "5.425s", "5.85s", "6.275s"]


def test_a_rate_falls_in_two_steps_and_comes_back_in_two() -> None:
    rate = days(1)[1]
    (_, (outer, inner), *_) = (value for value, _ in rate.values)
    assert (outer["for"], inner["for"]) == ("6.0s", "2.0s")
    assert inner["node_pair_rate"] == "58593750bit"
    assert outer["node_pair_rate"] == "68359375bit"
