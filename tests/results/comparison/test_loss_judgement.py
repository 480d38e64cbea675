"""A loss that only one side ever reached is a verdict; what only some seeds of a side reached is none."""

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.results.comparison.judgement import ITERATION_TIME, parse_metric
from wanbed.results.comparison.loss_judgement import LossPair, judge_loss
from wanbed.results.comparison.pairing import Pair, Side

SEEDS = 4


def lacking(a: int, b: int) -> LossPair:
    """A pair of four seeds a side, of which so many never reached the loss."""
    sides = (Side(0, "diloco", ((1.0,),) * (SEEDS - missing), exact=False) for missing in (a, b))
    return LossPair(Pair({}, *sides), (a, b), (SEEDS, SEEDS))


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (SEEDS, 0, "improved"),
        (0, SEEDS, "regressed"),
        (SEEDS, 1, "no_data"),
        (1, SEEDS, "no_data"),
        (SEEDS, SEEDS, "no_data"),
        (1, 0, "no_data"),
    ],
)
def test_only_all_against_none_is_a_verdict(a: int, b: int, verdict: str) -> None:
    assert judge_loss(lacking(a, b), parse_metric(["time-to", "4.75"]), margin=0.02).verdict == verdict


@pytest.mark.parametrize(("seeds", "verdict"), [(3, "regressed"), (2, "no_data")])
def test_three_seeds_a_side_are_enough_for_all_against_none(seeds: int, verdict: str) -> None:
    times = ((1.0,),) * seeds
    pair = Pair({}, Side(0, "x", times, exact=False), Side(0, "x", (), exact=False))
    found = judge_loss(LossPair(pair, (0, seeds), (seeds, seeds)), parse_metric(["time-to", "4.75"]), margin=0.02)
    assert found.verdict == verdict
    assert found.reading == (
        f"{seeds} of {seeds} trials of B never reached a loss of 4.75: give a higher one, or train longer"
    )


def test_a_loss_at_a_time_that_some_trial_has_not_is_never_a_verdict() -> None:
    metric = parse_metric(["loss-at", "60s"])
    assert judge_loss(lacking(0, SEEDS), metric, margin=0.02).verdict == "no_data"
    assert judge_loss(lacking(2, 1), metric, margin=0.02).reading.startswith(
        "2 of 4 trials of A and 1 of 4 trials of B had no loss at 60s: "
    )


def test_a_metric_knows_its_words_and_figures() -> None:
    loss, time = parse_metric(["loss-at", "1500ms"]), parse_metric(["time-to", "2.50"])
    assert (loss.name, loss.at, loss.field, loss.draw) == ("loss-at 1500ms", 1.5, "loss", "seed")
    assert (loss.worse, loss.better, loss.equal, loss.text(2.5)) == ("higher", "lower", "equal", "2.5000")
    assert (time.name, time.at, time.field, time.draw) == ("time-to 2.5", 2.5, "time_to_loss_s", "seed")
    assert (time.worse, time.better, loss.text(None)) == ("slower", "faster", "n/a")
    assert (loss.of_losses, time.of_losses, ITERATION_TIME.of_losses) == (True, True, False)
    for written in ("1_0", "٣", "1.2.3", ""):
        with pytest.raises(InputError, match="is no loss"):
            parse_metric(["time-to", written])
