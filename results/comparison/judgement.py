"""What the iteration times of one pair say: slower, faster, the same, or not known well enough."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from results.comparison.bootstrap import (
    CONFIDENCE,
    Trials,
    ratio_interval,
    resampled_medians,
)
from results.comparison.pairing import Pair, Side
from results.number_text import count_text, list_text, percent_text

PairVerdict = Literal["same", "regressed", "improved", "unclear", "no_data"]

MANY_REPEATS = 100
"""More than that are not advised: the effect is about as large as the margin, and no measurement settles that."""


@dataclass(frozen=True)
class Judgement:
    """What came out for one pair. ``ratio`` is B's iteration time over A's, above 1 where B is slower.

    ``margin`` is the one that was applied, the larger of the margin asked for and ``noise_floor``; None: not measured.
    ``reading`` says the verdict in one line.
    """

    pair: Pair
    ratio: float | None
    interval: tuple[float, float] | None
    verdict: PairVerdict
    margin: float
    noise_floor: float | None
    reading: str


def judge(pair: Pair, margin: float, noise_floor: float | None = None, seed: int = 0) -> Judgement:
    """Hold the 95 % interval of the ratio against the margin m, a fraction.

    - regressed: the interval's low end is above 1 + m
    - improved: its high end is below 1 / (1 + m), so that swapping the runs swaps the verdicts
    - same: it lies within these two
    - unclear: it reaches past one of them, or past both
    - no_data: there is no ratio or, for want of a second measurement, no interval

    A simulation gives the same every time: its interval is the ratio itself.
    """
    applied = max(margin, noise_floor or 0.0)
    a_s, b_s = pair.a.median_s, pair.b.median_s
    if not a_s or not b_s:
        reading = f"no iteration was measured in {list_text([name for name, s in (('A', a_s), ('B', b_s)) if not s])}"
        return Judgement(pair, None, None, "no_data", applied, noise_floor, reading)
    ratio = b_s / a_s
    interval = _interval(pair, ratio, seed)
    if interval is None:
        reading = "one measurement tells nothing of the noise: run both with repeats: 5"
        return Judgement(pair, ratio, None, "no_data", applied, noise_floor, reading)
    verdict = _verdict(interval, applied)
    return Judgement(
        pair, ratio, interval, verdict, applied, noise_floor, _reading(pair, ratio, interval, verdict, applied)
    )


def _interval(pair: Pair, ratio: float, seed: int) -> tuple[float, float] | None:
    a, b = pair.a, pair.b
    if a.exact and b.exact:
        return ratio, ratio
    return ratio_interval(_exact_or_measured(a), _exact_or_measured(b), seed=seed)


def _exact_or_measured(side: Side) -> Trials:
    """An exact median stands twice, as a measurement without scatter."""
    return [[side.median_s or 0.0] * 2] if side.exact else side.times_s


def _verdict(interval: tuple[float, float], margin: float) -> PairVerdict:
    low, high = interval
    if low > 1 + margin:
        return "regressed"
    if high < 1 / (1 + margin):
        return "improved"
    return "same" if low >= 1 / (1 + margin) and high <= 1 + margin else "unclear"


def change_text(ratio: float) -> str:
    """``1.05`` as ``5.00 % slower``."""
    if ratio == 1:
        return "equally fast"
    return f"{percent_text(abs(ratio - 1))} {'slower' if ratio > 1 else 'faster'}".replace("\u00a0", " ")


def _reading(pair: Pair, ratio: float, interval: tuple[float, float], verdict: PairVerdict, margin: float) -> str:
    change, span = change_text(ratio), f"{interval[0]:.3f} to {interval[1]:.3f}"
    within = percent_text(margin).replace("\u00a0", " ")
    if verdict == "unclear":
        return f"{change}, but {span} reaches past {within}: {_advice(pair, ratio, interval, margin)}"
    sure = "exact, as simulated" if pair.a.exact and pair.b.exact else f"95 % sure: {span}"
    return f"{change} ({sure}; margin {within})"


def _advice(pair: Pair, ratio: float, interval: tuple[float, float], margin: float) -> str:
    fewest = min(side.repeats for side in (pair.a, pair.b) if not side.exact)
    repeats = repeats_to_settle(fewest, ratio, interval, margin)
    if repeats is None:
        return "the effect is about as large as the margin, more repeats would hardly settle it: give another margin"
    return f"about {count_text(repeats, 'repeat')} might settle it"


def repeats_to_settle(repeats: int, ratio: float, interval: tuple[float, float], margin: float) -> int | None:
    """How many repeats might settle an unclear verdict, None for more than ``MANY_REPEATS``.

    An interval shrinks with the square root of the number of repeats. It has to become shorter than the way from the
    ratio to the nearer end of the margins.
    """
    half = (math.log(interval[1]) - math.log(interval[0])) / 2
    way = min(abs(math.log(ratio) - end) for end in (math.log1p(margin), -math.log1p(margin)))
    if way == 0:
        return None
    needed = max(repeats + 1, math.ceil(repeats * (half / way) ** 2))
    return needed if needed <= MANY_REPEATS else None


def noise_floor(times_s: Trials, a: Side, b: Side, seed: int = 0) -> float:
    """How far from 1 the ratio of two runs of the same thing lies, 95 times of 100.

    The 95 % quantile of abs(ratio - 1) between two resamples, with as many repeats as A and B have, of the same
    ``times_s``. Raises ValueError without a measurement.
    """
    generator = np.random.default_rng(seed)
    of_a, of_b = (resampled_medians(times_s, generator, repeats=max(1, side.repeats)) for side in (a, b))
    return float(np.quantile(np.abs(of_b / of_a - 1), CONFIDENCE))
