"""Judge the figures of one pair by a metric: slower, faster, the same, or undecided.

The metric is the iteration time, or what was learnt in a given time.

What was learnt is judged as iteration times are, with seeds in place of repeats. Chance draws the seed: it decides the
weights that a training begins with and the order of what it learns. Repeats with one seed learn the same, and show only
how much the clock differs. So a trial has one figure, the trials of one seed stand together, and intervals are drawn
over seeds (``wanbed.results.metrics.bootstrap``).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wanbed.ground.errors import InputError, shown
from wanbed.ground.units import format_duration, parse_duration_ns
from wanbed.results.comparison.pairing import Pair, Side
from wanbed.results.metrics.bootstrap import (
    CONFIDENCE,
    ENOUGH_REPEATS,
    FEWEST_REPEATS,
    Trials,
    has_interval,
    ratio_interval,
    resampled_medians,
)
from wanbed.results.reading.losses import ClockError, LossTrial, loss_trials
from wanbed.results.reading.run import Run
from wanbed.results.records.schema import HELD_OUT, TRAINING
from wanbed.results.text import count_text, list_text, percent_text, seconds_text

MetricKind = Literal["iteration-time", "loss-at", "time-to"]

METRICS = ("loss-at", "time-to")
"""The metrics that a user may name, each with its argument."""

_NS_PER_S = 1e9


@dataclass(frozen=True)
class Metric:
    """A figure of a trial of which less is better: a comparison judges the ratio of B's to A's.

    ``at`` is the time in seconds of ``loss-at``, or the loss of ``time-to``. ``field`` is the figure's name in JSON;
    ``worse`` and ``better`` say what a ratio above and below 1 means, ``equal`` what 1 means.
    """

    kind: MetricKind
    name: str
    field: str
    at: float = 0.0
    worse: str = "slower"
    better: str = "faster"
    equal: str = "equally fast"
    draw: str = "repeat"

    @property
    def of_losses(self) -> bool:
        """Tell whether it is about what was learnt; then seeds are what chance draws, and not repeats."""
        return self.kind != "iteration-time"

    @property
    def text(self) -> Callable[[float | None], str]:
        """The function that writes a figure for readers."""
        return _loss_text if self.kind == "loss-at" else seconds_text


ITERATION_TIME = Metric("iteration-time", "iteration-time", "iteration_time_s")


def _loss_text(loss: float | None) -> str:
    """Write a loss with four digits behind the point, ``n/a`` for none."""
    return "n/a" if loss is None else f"{loss:.4f}"


def parse_metric(words: Sequence[str]) -> Metric:
    """Return the metric of the words ``loss-at TIME`` or ``time-to LOSS``. Raise InputError for any others."""
    option = f"--metric {' '.join(words)}"
    if len(words) != 2 or words[0] not in METRICS:
        raise InputError(
            f"{option}: write loss-at and a time, like loss-at 60s, or time-to and a loss, like time-to 2.5"
        )
    kind, written = words
    if kind == "loss-at":
        try:
            time_ns = parse_duration_ns(written)
        except ValueError as refusal:
            raise InputError(f"{option}: {refusal}") from None
        name = f"loss-at {format_duration(time_ns)}"
        return Metric("loss-at", name, "loss", time_ns / _NS_PER_S, "higher", "lower", "equal", "seed")
    try:
        # Python reads more as a number than is meant by one: digits of other scripts, 1_0 as 10, and nan.
        loss = float(written) if written.isascii() and written.replace(".", "", 1).isdigit() else 0.0
    except ValueError:
        loss = 0.0
    if not loss > 0:
        raise InputError(f"{option}: {shown(written)} is no loss: write a number above 0, like 2.5")
    return Metric("time-to", f"time-to {loss:g}", "time_to_loss_s", loss, draw="seed")


PairVerdict = Literal["same", "regressed", "improved", "unclear", "no_data"]

MANY_REPEATS = 100
"""The most repeats that are advised. If more are needed, the effect is about as large as the margin."""

_NO_TIME = "no iteration time was measured in {}: it takes two iterations"


@dataclass(frozen=True)
class Judgement:
    """The judgement of one pair. ``ratio`` is B's iteration time divided by A's, above 1 if B is slower.

    ``interval`` is None if either side has too few repeats for one. ``margin`` is the applied one; ``noise_floor`` is
    None if it was not measured. ``reading`` explains the verdict in one line.
    """

    pair: Pair
    ratio: float | None
    interval: tuple[float, float] | None
    verdict: PairVerdict
    margin: float
    noise_floor: float | None
    reading: str


def judge(
    pair: Pair, margin: float, noise_floor: float | None = None, seed: int = 0, metric: Metric = ITERATION_TIME
) -> Judgement:
    """Judge the 95 % interval of the ratio by m: the margin, a fraction, or the noise floor if that is larger.

    - regressed: the interval's low end is above 1 + m
    - improved: its high end is below 1 / (1 + m), so that swapping the runs swaps the verdicts
    - same: it lies within these two bounds
    - unclear: it extends beyond one of them or both
    - no_data: there is no ratio, or the noise between repeats is unknown

    A simulation is deterministic: its interval is the ratio itself. Fewer than ``FEWEST_REPEATS`` repeats have no
    interval. Then an interval follows from the largest relative error of the ratio, and is judged by ``margin`` alone.
    That error is the noise floor if it was measured, else the repeatability of virtual time.

    ``metric`` is what the sides hold: times of iterations, or figures of losses, whose draws are seeds.
    """
    applied = max(margin, noise_floor or 0.0)
    a_s, b_s = pair.a.median_s, pair.b.median_s
    if not a_s or not b_s:
        sides = list_text([name for name, s in (("A", a_s), ("B", b_s)) if not s])
        reading = f"no figure is known in {sides}" if metric.of_losses else _NO_TIME.format(sides)
        return Judgement(pair, None, None, "no_data", applied, noise_floor, reading)
    ratio = b_s / a_s
    interval = _interval(pair, ratio, seed)
    if interval is not None:
        verdict = _verdict(interval, applied)
        reading = _reading(pair, ratio, interval, verdict, applied, metric=metric)
        return Judgement(pair, ratio, interval, verdict, applied, noise_floor, reading)
    reach = _repeatable_within(pair) if noise_floor is None else noise_floor
    if reach is None:
        remedy = (
            "and training.vary_seed: true"
            if metric.of_losses
            else f"or measure the noise with --noise {ENOUGH_REPEATS}"
        )
        reading = (
            f"{change_text(ratio, metric)}, but {few_repeats_text(pair, metric)}: run both with repeats: "
            f"{ENOUGH_REPEATS}{'' if metric.of_losses else ','} {remedy}"
        )
        return Judgement(pair, ratio, None, "no_data", applied, noise_floor, reading)
    span = ratio / (1 + reach), ratio * (1 + reach)
    source = "by the repeatability of virtual time" if noise_floor is None else "by the measured noise"
    verdict = _verdict(span, margin)
    reading = _without_interval(pair, ratio, verdict, f"{_span_text(span)} {source}", percent_text(margin))
    return Judgement(pair, ratio, None, verdict, margin, noise_floor, reading)


def few_repeats_text(pair: Pair, metric: Metric = ITERATION_TIME) -> str:
    """Explain why a pair has no interval: ``1 repeat in A and 2 repeats in B, no interval``."""
    few = {name: side.repeats for name, side in (("A", pair.a), ("B", pair.b)) if not _enough(side)}
    alike = len(few) == 2 and len(set(few.values())) == 1
    counts = [count_text(repeats, metric.draw) + ("" if alike else f" in {name}") for name, repeats in few.items()]
    return f"{list_text(list(dict.fromkeys(counts)))}, no interval"


def _enough(side: Side) -> bool:
    return side.exact or has_interval(side.times_s)


def _interval(pair: Pair, ratio: float, seed: int) -> tuple[float, float] | None:
    a, b = pair.a, pair.b
    if a.exact and b.exact:
        return ratio, ratio
    return ratio_interval(_exact_or_measured(a), _exact_or_measured(b), seed=seed)


def _repeatable_within(pair: Pair) -> float | None:
    """Return the largest relative error of the ratio if it is known without repeats on both sides, else None."""
    known = [side.repeatable_within for side in (pair.a, pair.b) if side.repeatable_within is not None]
    return sum(known) if len(known) == 2 else None


def _exact_or_measured(side: Side) -> Trials:
    """Return the measured times. For a simulation return its median as often as an interval needs repeats."""
    return [[side.median_s or 0.0]] * FEWEST_REPEATS if side.exact else side.times_s


def _verdict(interval: tuple[float, float], margin: float) -> PairVerdict:
    low, high = interval
    if low > 1 + margin:
        return "regressed"
    if high < 1 / (1 + margin):
        return "improved"
    return "same" if low >= 1 / (1 + margin) and high <= 1 + margin else "unclear"


def change_text(ratio: float, metric: Metric = ITERATION_TIME) -> str:
    """Write ``1.05`` as ``5.00 % slower``."""
    if ratio == 1:
        return metric.equal
    return f"{percent_text(abs(ratio - 1))} {metric.worse if ratio > 1 else metric.better}".replace("\u00a0", " ")


def _span_text(span: tuple[float, float]) -> str:
    return f"{span[0]:.3f} to {span[1]:.3f}"


def _reading(
    pair: Pair, ratio: float, interval: tuple[float, float], verdict: PairVerdict, margin: float, *, metric: Metric
) -> str:
    change, span = change_text(ratio, metric), _span_text(interval)
    within = percent_text(margin).replace("\u00a0", " ")
    if verdict == "unclear":
        return f"{change}, but {span} reaches past {within}: {_advice(pair, ratio, interval, margin, metric)}"
    certainty = (
        "simulated without noise, which is not without error"
        if pair.a.exact and pair.b.exact
        else f"95 % interval: {span}"
    )
    return f"{change} ({certainty}; margin {within})"


def _without_interval(pair: Pair, ratio: float, verdict: PairVerdict, span: str, margin: str) -> str:
    change, few, within = change_text(ratio), few_repeats_text(pair), margin.replace("\u00a0", " ")
    if verdict == "unclear":
        return f"{change}, but {few}, and {span} reaches past {within}: run both with repeats: {ENOUGH_REPEATS}"
    return f"{change} ({few}; {span}; margin {within})"


def _advice(pair: Pair, ratio: float, interval: tuple[float, float], margin: float, metric: Metric) -> str:
    fewest = min(side.repeats for side in (pair.a, pair.b) if not side.exact)
    repeats = repeats_to_settle(fewest, ratio, interval, margin)
    if repeats is None:
        hardly = f"more {metric.draw}s would hardly settle it: give another margin"
        return f"the effect is about as large as the margin, {hardly}"
    return f"about {count_text(repeats, metric.draw)} might settle it"


def repeats_to_settle(repeats: int, ratio: float, interval: tuple[float, float], margin: float) -> int | None:
    """Return how many repeats might settle an unclear verdict, None for more than ``MANY_REPEATS``.

    An interval shrinks with the square root of the number of repeats. Half of it must become shorter than the distance
    from the ratio to the nearer bound of the margin; both are measured in logarithms.
    """
    low, high = interval
    if not 0 < low <= high < math.inf:
        # In some repeats an iteration took no time at all: the interval has no length in logarithms.
        return None
    half = (math.log(high) - math.log(low)) / 2
    distance = min(abs(math.log(ratio) - end) for end in (math.log1p(margin), -math.log1p(margin)))
    if distance == 0:
        return None
    needed = max(repeats + 1, math.ceil(repeats * (half / distance) ** 2))
    return needed if needed <= MANY_REPEATS else None


def noise_floor(times_s: Trials, a: Side, b: Side, seed: int = 0) -> float:
    """Return the noise floor: the distance from 1 that the ratio of two equal runs does not exceed 95 times in 100.

    It is the 95 % quantile of abs(ratio - 1) between two resamples of the same ``times_s``, with as many repeats as A
    and B have. Raise ValueError if there is no measurement.
    """
    generator = np.random.default_rng(seed)
    of_a, of_b = (resampled_medians(times_s, generator, repeats=max(1, side.repeats)) for side in (a, b))
    return float(np.quantile(np.abs(of_b / of_a - 1), CONFIDENCE))


_SPLIT_NAMES = {HELD_OUT: "held-out loss", TRAINING: "training loss, of which single iterations differ by chance"}


@dataclass(frozen=True)
class LossPair:
    """A pair whose sides hold the figures of a metric in place of times.

    ``trials`` are the numbers of trials of A and of B, of which ``lacking`` have no figure.
    """

    pair: Pair
    lacking: tuple[int, int]
    trials: tuple[int, int]


@dataclass(frozen=True)
class LossPairs:
    """All pairs, and ``notes`` on what their figures are of: which loss, whose clock."""

    pairs: tuple[LossPair, ...]
    notes: tuple[str, ...]


def loss_pairs(
    a: Run, b: Run, pairs: Sequence[Pair], metric: Metric, clocks: tuple[Run | None, Run | None] = (None, None)
) -> LossPairs:
    """Return the pairs of the metric, at each sweep point of the clock.

    The held-out loss counts if every trial has one, else the training loss does. Raise InputError if a run has no
    losses, ClockError if a clock does not fit.
    """
    of_a = loss_trials(a, clocks[0])
    of_b = of_a if a is b and clocks[0] is clocks[1] else loss_trials(b, clocks[1])
    for name, run, found in (("A", a, of_a), ("B", b, of_b)):
        if not found:
            raise InputError(
                f"--metric: {name}, {run.path}, has no losses: only torch learns, and older runs kept none"
            )
    split = HELD_OUT if all(trial.held_out is not None for trial in (*of_a, *of_b)) else TRAINING
    made: list[LossPair] = []
    for pair in pairs:
        sides = [_by_point(found, side) for found, side in ((of_a, pair.a), (of_b, pair.b))]
        if sides[0].keys() != sides[1].keys():
            raise ClockError(
                f"--clock: for {pair.variant_text} A's clock has other sweep points than B's: give one clock for both"
            )
        for key, own in sides[0].items():
            own_b = sides[1][key]
            chosen = [_side(side, trials, split, metric) for side, trials in ((pair.a, own), (pair.b, own_b))]
            made.append(
                LossPair(
                    replace(pair, point=own[0].values, a=chosen[0][0], b=chosen[1][0]),
                    (chosen[0][1], chosen[1][1]),
                    (len(own), len(own_b)),
                )
            )
    return LossPairs(tuple(made), _notes(of_a, of_b, split))


def _by_point(trials: Sequence[LossTrial], side: Side) -> dict[frozenset[tuple[str, str]], list[LossTrial]]:
    found: dict[frozenset[tuple[str, str]], list[LossTrial]] = {}
    for trial in trials:
        if (trial.id.point, trial.variant) == (side.point, side.variant):
            found.setdefault(frozenset(trial.values.items()), []).append(trial)
    return found


def _side(side: Side, trials: Sequence[LossTrial], split: str, metric: Metric) -> tuple[Side, int]:
    """Return the side with the figures of each seed, and the number of trials that have none."""
    of_seeds: dict[int | None, list[float]] = {}
    lacking = 0
    for trial in trials:
        curve = trial.curve(split)
        figure = None
        if curve is not None:
            figure = curve.loss_at(metric.at) if metric.kind == "loss-at" else curve.time_to_s(metric.at)
        if figure is None:
            lacking += 1
        else:
            of_seeds.setdefault(trial.seed, []).append(figure)
    figures = tuple(tuple(values) for values in of_seeds.values())
    # How busy the machine was while it learnt says nothing of a clock of another run.
    saturated = 0 if any(trial.provenance.joined for trial in trials) else side.saturated
    found = replace(
        side,
        times_s=figures,
        exact=False,
        repeatable_within=None,
        saturated=saturated,
        bound=None,
        iterations=sum(map(len, figures)),
    )
    return found, lacking


def _notes(of_a: Sequence[LossTrial], of_b: Sequence[LossTrial], split: str) -> tuple[str, ...]:
    notes = [f"Judged is the {_SPLIT_NAMES[split]}."]
    texts: Mapping[str, list[str]] = {
        name: list(dict.fromkeys(trial.provenance.text for trial in own)) for name, own in (("A", of_a), ("B", of_b))
    }
    if texts["A"] == texts["B"]:
        notes.append(f"A and B: {list_text(texts['A'])}.")
    else:
        notes += [f"{name}: {list_text(own)}." for name, own in texts.items()]
    return tuple(notes)


def judge_loss(found: LossPair, metric: Metric, margin: float, seed: int = 0) -> Judgement:
    """Judge the ratio of the metric's figures if every trial has one, with seeds in place of repeats.

    A loss that only one side ever reached has no ratio. With ``FEWEST_REPEATS`` seeds a side that is a verdict all the
    same: regressed if all of A's trials and none of B's reached it, improved if it is the other way round. Whatever
    else has no figure is no_data.
    """
    if not any(found.lacking):
        return judge(found.pair, margin, None, seed, metric)
    verdict: PairVerdict = "no_data"
    if metric.kind == "time-to" and min(found.trials) >= FEWEST_REPEATS:
        a_none, b_none = (lacking == trials for lacking, trials in zip(found.lacking, found.trials, strict=True))
        if b_none and not found.lacking[0] and found.pair.a.repeats >= FEWEST_REPEATS:
            verdict = "regressed"
        if a_none and not found.lacking[1] and found.pair.b.repeats >= FEWEST_REPEATS:
            verdict = "improved"
    return Judgement(found.pair, None, None, verdict, margin, None, _reading_without(found, metric))


def _reading_without(found: LossPair, metric: Metric) -> str:
    missing = [
        f"{lacking} of {count_text(trials, 'trial')} of {name}"
        for name, lacking, trials in zip("AB", found.lacking, found.trials, strict=True)
        if lacking
    ]
    if metric.kind == "time-to":
        return f"{list_text(missing)} never reached a loss of {metric.at:g}: give a higher one, or train longer"
    return (
        f"{list_text(missing)} had no loss at {metric.name.partition(' ')[2]}: it was before the first one, after the "
        "training's end, or the training had diverged"
    )
