"""The verdict of one pair, and how often it is wrong where the truth is known."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.results.comparison.judgement import (
    ITERATION_TIME,
    LossPair,
    PairVerdict,
    change_text,
    few_repeats_text,
    judge,
    judge_loss,
    noise_floor,
    parse_metric,
    repeats_to_settle,
)
from wanbed.results.comparison.pairing import Pair, Side

Times = Sequence[Sequence[float]]

measured = st.lists(st.lists(st.floats(0.01, 100), min_size=2, max_size=3), min_size=3, max_size=5)

MIRROR: dict[PairVerdict, PairVerdict] = {"regressed": "improved", "improved": "regressed"}


def pair(a: Times, b: Times, *, exact: bool = False) -> Pair:
    sides = (Side(0, "atlas", tuple(map(tuple, times)), exact) for times in (a, b))
    return Pair({}, *sides)


def flat(seconds: float) -> Times:
    return [[seconds] * 2] * 5


def noisy(
    generator: np.random.Generator, seconds: float, of_repeats: float, of_iterations: float, repeats: int = 5
) -> Times:
    """Five repeats, each the mean of two iterations; both deviations are fractions."""
    return [
        [float(np.mean(seconds * (1 + generator.normal(0, of_repeats)) * (1 + generator.normal(0, of_iterations, 2))))]
        for _ in range(repeats)
    ]


def verdicts(count: int, slower: float, of_repeats: float, of_iterations: float) -> list[PairVerdict]:
    generator = np.random.default_rng(20_26)
    return [
        judge(
            pair(noisy(generator, 1.0, of_repeats, of_iterations), noisy(generator, slower, of_repeats, of_iterations)),
            margin=0.02,
        ).verdict
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.0, "same"), (1.019, "same"), (1.021, "regressed"), (0.982, "same"), (0.98, "improved"), (0.5, "improved")],
)
def test_without_noise_the_margin_alone_decides(ratio: float, verdict: str) -> None:
    judgement = judge(pair(flat(2.0), flat(2.0 * ratio)), margin=0.02)
    assert judgement.verdict == verdict
    assert judgement.ratio == pytest.approx(ratio)
    assert judgement.interval == pytest.approx((ratio, ratio))


@given(measured, st.integers(0, 3))
@settings(max_examples=40)
def test_the_same_samples_never_regress_or_improve(times: Times, seed: int) -> None:
    judgement = judge(pair(times, times), margin=0.0, seed=seed)
    assert judgement.ratio == 1
    assert judgement.verdict in {"same", "unclear"}


@given(st.floats(0.001, 1000), st.floats(0.0, 0.2), st.floats(0.001, 1.0))
@settings(max_examples=40)
def test_a_pure_slow_down_beyond_the_margin_regresses(seconds: float, margin: float, beyond: float) -> None:
    slower = (1 + margin) * (1 + beyond) * seconds
    assert judge(pair(flat(seconds), flat(slower)), margin).verdict == "regressed"
    assert judge(pair(flat(slower), flat(seconds)), margin).verdict == "improved"


@given(measured, measured)
@settings(max_examples=40)
def test_swapping_the_runs_inverts_the_ratio_and_never_keeps_a_regression(a: Times, b: Times) -> None:
    one, other = judge(pair(a, b), 0.02), judge(pair(b, a), 0.02)
    assert one.ratio is not None
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert not {one.verdict, other.verdict} <= {"regressed"}
    assert not {one.verdict, other.verdict} <= {"improved"}


def test_a_simulation_is_exact_though_it_ran_once() -> None:
    judgement = judge(pair([[2.0]], [[2.1]], exact=True), margin=0.02)
    assert (judgement.interval, judgement.verdict) == ((1.05, 1.05), "regressed")
    assert "simulated without noise, which is not without error" in judgement.reading


def test_a_simulation_held_against_measurements_has_their_noise_alone() -> None:
    exact, other = (
        Side(0, "atlas", ((1.0,),), exact=True),
        Side(0, "atlas", ((1.1, 1.2), (1.1, 1.3), (1.2,)), exact=False),
    )
    judgement = judge(Pair({}, exact, other), margin=0.02)
    assert judgement.interval is not None
    assert 1.1 <= judgement.interval[0] < judgement.interval[1] <= 1.3


@pytest.mark.parametrize(
    ("few", "words"),
    [([[1.0]], "1 repeat in A"), ([[1.0] * 30], "1 repeat in A"), ([[1.0, 1.0], [1.0, 1.0]], "2 repeats in A")],
)
def test_below_three_repeats_there_is_neither_interval_nor_verdict_but_the_remedy(few: Times, words: str) -> None:
    judgement = judge(pair(few, flat(2.0)), margin=0.02)
    assert (judgement.ratio, judgement.interval, judgement.verdict) == (2.0, None, "no_data")
    assert judgement.reading.startswith(f"100 % slower, but {words}, no interval: run both with repeats: 5")


def test_iterations_of_one_trial_are_not_taken_for_repeats() -> None:
    """Steady within each trial, and 5 % apart by the trial alone: nothing may be said of it."""
    generator = np.random.default_rng(7)
    a, b = (noisy(generator, 1.0, 0.05, 0.0001, repeats=1) for _ in "ab")
    assert judge(pair([times * 20 for times in a], [times * 20 for times in b]), margin=0.0).verdict == "no_data"


@pytest.mark.parametrize(
    ("ratio", "floor", "verdict"),
    [(1.05, 0.01, "regressed"), (0.95, 0.01, "improved"), (1.005, 0.01, "same"), (1.025, 0.01, "unclear")],
)
def test_one_repeat_is_judged_by_the_measured_noise(ratio: float, floor: float, verdict: str) -> None:
    judgement = judge(pair([[1.0]], [[ratio]]), margin=0.02, noise_floor=floor)
    assert (judgement.verdict, judgement.interval, judgement.margin) == (verdict, None, 0.02)
    assert "1 repeat, no interval" in judgement.reading
    assert "by the measured noise" in judgement.reading


def test_no_measurement_gives_no_ratio() -> None:
    judgement = judge(pair(flat(1.0), [[], []]), margin=0.02)
    assert (judgement.ratio, judgement.verdict) == (None, "no_data")
    assert judgement.reading == "no iteration time was measured in B: it takes two iterations"


def test_noise_wider_than_the_margin_is_unclear_and_says_how_many_repeats_might_do() -> None:
    a = [[1.0, 1.0], [1.03, 1.03], [0.97, 0.97], [1.01, 1.01], [0.99, 0.99]]
    judgement = judge(pair(a, a), margin=0.02)
    assert judgement.verdict == "unclear"
    assert "repeats might settle it" in judgement.reading


def test_repeats_needed_grow_with_the_square_of_the_interval() -> None:
    e = np.exp
    assert repeats_to_settle(5, 1.0, (float(e(-0.0399)), float(e(0.0399))), float(np.expm1(0.02))) == 20
    assert repeats_to_settle(5, 1.0, (float(e(-0.021)), float(e(0.021))), float(np.expm1(0.02))) == 6
    assert repeats_to_settle(5, 1.02, (0.99, 1.05), 0.02) is None, "an effect as large as the margin"
    assert repeats_to_settle(5, 1.0, (0.0, 1.0), 0.02) is None, "an iteration that took no time"
    assert repeats_to_settle(5, 1.0, (1.0, np.inf), 0.02) is None
    assert repeats_to_settle(5, 1.0, (np.nan, np.nan), 0.02) is None


def test_the_noise_floor_raises_the_margin_and_never_lowers_it() -> None:
    slower = pair(flat(1.0), flat(1.05))
    assert judge(slower, 0.02, noise_floor=0.06).verdict == "same"
    assert judge(slower, 0.02, noise_floor=0.06).margin == 0.06
    assert judge(slower, 0.02, noise_floor=0.001).verdict == "regressed"


def test_the_noise_floor_of_steady_repeats_is_nothing_and_falls_with_their_number() -> None:
    few, many = (Side(0, "atlas", ((1.0,),) * repeats, exact=False) for repeats in (2, 40))
    assert noise_floor(flat(1.0), few, few) == 0
    noise = noisy(np.random.default_rng(0), 1.0, 0.02, 0.0, repeats=10)
    assert noise_floor(noise, many, many) < noise_floor(noise, few, few)
    assert 0.005 < noise_floor(noise, few, few) < 0.1


def test_false_alarms_are_rarer_than_one_in_forty() -> None:
    """Of 600 A/A comparisons at a margin of 2 %, 2 % of noise of iterations gave none, nor with 2 % of repeats on top.

    The 95 % interval alone allows 2.5 % beyond the ratio 1; the margin comes on top.
    """
    assert verdicts(150, 1.0, 0.0, 0.02).count("regressed") == 0
    assert verdicts(150, 1.0, 0.02, 0.02).count("regressed") <= 3


def test_a_slow_down_of_5_percent_at_1_percent_of_noise_is_seen_by_five_repeats() -> None:
    """Of 600, all with noise of iterations alone, and 83 % with as much of repeats on top; the rest are unclear."""
    assert verdicts(100, 1.05, 0.0, 0.01).count("regressed") >= 97
    both = verdicts(100, 1.05, 0.01, 0.01)
    assert both.count("regressed") >= 65
    assert set(both) <= {"regressed", "unclear"}


def test_a_change_is_reported_in_percent_of_the_baseline() -> None:
    assert change_text(1.05) == "5.00 % slower"
    assert change_text(0.5) == "50.0 % faster"
    assert change_text(1.0) == "equally fast"


def test_measured_noise_widens_the_span_of_few_repeats_and_the_margin_is_applied_to_that_once() -> None:
    judged = judge(pair([[1.0, 1.0]], [[1.06, 1.06]]), margin=0.02, noise_floor=0.03)
    assert judged.verdict == "regressed", "1.06 less 3 % of noise is above a margin of 2 %"


def test_two_runs_in_virtual_time_may_differ_by_what_both_repeat_within() -> None:
    a, b = (Side(0, "atlas", ((time_s, time_s),), exact=False, repeatable_within=0.02) for time_s in (1.0, 1.05))
    judged = judge(Pair({}, a, b), margin=0.02)
    assert judged.verdict == "unclear", "1.05 less 4 % is within a margin of 2 %; less 2 % it would not be"


@pytest.mark.parametrize(
    ("b", "verdict"),
    [(1.5, "same"), (1.5000001, "regressed"), (2 / 3, "same"), (0.6666666, "improved")],
)
def test_a_ratio_at_a_bound_of_the_margin_is_within_it(b: float, verdict: str) -> None:
    assert judge(pair([[1.0]], [[b]], exact=True), margin=0.5).verdict == verdict


def test_the_reading_tells_change_interval_and_margin() -> None:
    assert judge(pair(flat(1.0), flat(1.1)), 0.02).reading == (
        "10.0 % slower (95 % interval: 1.100 to 1.100; margin 2.00 %)"
    )
    assert (
        judge(pair([[2.0]], [[1.0]], exact=True), 0.02).reading
        == "50.0 % faster (simulated without noise, which is not without error; margin 2.00 %)"
    )
    judged = judge(pair([[1.0]], [[1.04]]), 0.02, noise_floor=0.01)
    assert judged.reading == (
        "4.00 % slower (1 repeat, no interval; 1.030 to 1.050 by the measured noise; margin 2.00 %)"
    )
    wide = judge(pair([[1.0]], [[1.03]]), 0.02, noise_floor=0.05)
    assert wide.reading == (
        "3.00 % slower, but 1 repeat, no interval, and 0.981 to 1.082 by the measured noise reaches past 2.00 %: run "
        "both with repeats: 5"
    )


def test_few_repeats_are_told_once_where_both_have_as_many_and_apart_where_not() -> None:
    one, two, enough = [[1.0]], [[1.0]] * 2, flat(1.0)
    assert few_repeats_text(pair(one, one)) == "1 repeat, no interval"
    assert few_repeats_text(pair(one, two)) == "1 repeat in A and 2 repeats in B, no interval"
    assert few_repeats_text(pair(enough, two)) == "2 repeats in B, no interval"


def test_virtual_time_is_judged_only_if_both_sides_repeat_within_something() -> None:
    def of(a: float | None, b: float | None, ratio: float) -> str:
        sides = (
            Side(0, "x", ((time_s,),), exact=False, repeatable_within=known) for time_s, known in ((1.0, a), (ratio, b))
        )
        return judge(Pair({}, *sides), margin=0.02).verdict

    assert of(0.001, 0.001, 1.0221) == "regressed", "1.0221 less 0.2 % is above 2 %"
    assert of(0.001, 0.001, 1.0219) == "unclear"
    assert of(0.0, 0.001, 1.0219) == "regressed"
    assert (of(0.001, None, 1.05), of(None, 0.001, 1.05)) == ("no_data", "no_data")


def test_no_more_than_a_hundred_repeats_are_advised() -> None:
    margin = float(np.expm1(0.02))
    assert repeats_to_settle(4, 1.0, (float(np.exp(-0.0998)), float(np.exp(0.0998))), margin) == 100
    assert repeats_to_settle(4, 1.0, (float(np.exp(-0.1002)), float(np.exp(0.1002))), margin) is None
    # The nearer bound counts, whichever it is.
    for ratio in (float(np.exp(0.01)), float(np.exp(-0.01))):
        span = (ratio * float(np.exp(-0.0199)), ratio * float(np.exp(0.0199)))
        assert repeats_to_settle(5, ratio, span, margin) == 20


def test_the_advice_counts_the_repeats_of_what_was_measured() -> None:
    measured_times = ((1.0,), (1.04,), (0.96,), (1.0,), (1.0,))
    exact, noisy_side = Side(0, "x", ((1.0,),), exact=True), Side(0, "x", measured_times, exact=False)
    judged = judge(Pair({}, exact, noisy_side), margin=0.02)
    assert judged.verdict == "unclear"
    (count,) = [int(word) for word in judged.reading.split() if word.isdigit()]
    assert count > 5


def test_a_side_without_measurements_is_named_alone_or_with_the_other() -> None:
    nothing: Times = [[]]
    assert (
        judge(pair(nothing, flat(1.0)), 0.02).reading == "no iteration time was measured in A: it takes two iterations"
    )
    judged = judge(pair(nothing, nothing), 0.02, noise_floor=0.05)
    assert judged.reading == "no iteration time was measured in A and B: it takes two iterations"
    assert (judged.margin, judged.noise_floor) == (0.05, 0.05)


def test_a_side_knows_its_counts_and_how_far_it_is_above_its_bound() -> None:
    own = Side(0, "x", ((1.5,), (), (3.0,)), exact=False, bound=(0.5, "gpu of stage 2"))
    assert (own.repeats, own.median_s, own.over_bound) == (2, 2.25, 4.5)
    assert own.bound_text == "4.50x bound (gpu of stage 2)"
    unbound = Side(0, "x", ((1.0,),), exact=False)
    assert (unbound.over_bound, unbound.bound_text) == (None, "n/a")


def test_the_noise_floor_holds_95_of_100_ratios_of_equal_runs() -> None:
    # One repeat each of four equally likely ones: ratios 1, 2 and 1/2; |ratio - 1| is 1 with probability 3/16.
    side = Side(0, "x", ((1.0,),), exact=False)
    assert noise_floor([[1.0], [1.0], [1.0], [2.0]], side, side) == 1.0
    empty = Side(0, "x", (), exact=False)
    assert noise_floor([[1.0], [1.0], [1.0], [2.0]], empty, empty) == 1.0


def test_losses_are_judged_by_seeds_and_told_in_their_own_words() -> None:
    metric = parse_metric(["loss-at", "60s"])
    nothing: Times = [[]]
    assert judge(pair(nothing, flat(1.0)), 0.02, metric=metric).reading == "no figure is known in A"
    few = judge(pair([[2.0]], [[3.0]]), 0.02, metric=metric)
    assert (few.verdict, few.ratio) == ("no_data", 1.5)
    assert few.reading == (
        "50.0 % higher, but 1 seed, no interval: run both with repeats: 5 and training.vary_seed: true"
    )
    assert judge(pair(flat(2.0), flat(1.0)), 0.02, metric=metric).reading.startswith("50.0 % lower (95 % interval: ")
    assert judge(pair(flat(2.0), flat(2.0)), 0.02, metric=metric).reading.startswith("equal (95 % interval: ")


def test_a_loss_is_written_with_four_digits_and_a_time_in_seconds() -> None:
    assert parse_metric(["loss-at", "60s"]).text(2.5) == "2.5000"
    assert parse_metric(["time-to", "2.5"]).text(2.5) == ITERATION_TIME.text(2.5) == "2.50\N{NO-BREAK SPACE}s"


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
