"""A loss that only one side ever reached is a verdict; what only some seeds of a side reached is none."""

import pytest

from results.comparison.losses.loss_judgement import judge_loss
from results.comparison.losses.loss_pairs import LossPair
from results.comparison.losses.metric import parse_metric
from results.comparison.pairing import Pair, Side

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
