import pytest

from wanbed.runner.runs.estimate import OVERRUN_SHARE, Kind, remaining_s

PREPARATION: Kind = ("preparation",)


def trial(variant: str, point: int = 0) -> Kind:
    return "trial", variant, point


def estimate(ended: list[tuple[Kind, float]], ahead: list[Kind], running_s: float = 0.0) -> float | None:
    return remaining_s(ended, ahead, running_s, basis="trial")


@pytest.mark.parametrize("ended", [[], [(PREPARATION, 12.0)]])
def test_there_is_nothing_to_go_by_before_a_trial_has_ended(ended: list[tuple[Kind, float]]) -> None:
    assert estimate(ended, [trial("gpipe")]) is None


def test_every_trial_ahead_is_counted_with_the_mean_of_its_like() -> None:
    ended = [(trial("gpipe"), 10.0), (trial("gpipe"), 14.0), (trial("atlas"), 2.0)]
    assert estimate(ended, [trial("atlas"), trial("gpipe"), trial("gpipe")]) == 2 + 12 + 12


def test_the_same_sweep_point_counts_before_the_same_variant_and_that_before_any_trial() -> None:
    ended = [(trial("gpipe", 0), 10.0), (trial("gpipe", 1), 20.0), (trial("atlas", 0), 3.0)]
    assert estimate(ended, [trial("gpipe", 1)]) == 20
    assert estimate(ended, [trial("gpipe", 2)]) == 15
    assert estimate(ended, [trial("varuna", 0)]) == 11


def test_preparations_ahead_are_counted_by_those_that_ended() -> None:
    ended = [(PREPARATION, 30.0), (trial("gpipe", 0), 5.0)]
    assert estimate(ended, [PREPARATION, trial("gpipe", 1)]) == 35


def test_what_runs_is_counted_down() -> None:
    assert estimate([(trial("gpipe"), 10.0)], [trial("gpipe"), trial("gpipe")], 4.0) == 16


def test_what_takes_longer_than_expected_still_has_time_left() -> None:
    assert estimate([(trial("gpipe"), 10.0)], [trial("gpipe"), trial("gpipe")], 40.0) == OVERRUN_SHARE * 40 + 10


def test_nothing_ahead_takes_no_time() -> None:
    assert estimate([(trial("gpipe"), 10.0)], []) == 0
