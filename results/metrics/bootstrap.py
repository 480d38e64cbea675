"""Estimate the uncertainty of a median iteration time, by the hierarchical percentile bootstrap.

The measurements of one variant in one sweep point are a sequence of repeats, each a sequence of iteration times in
seconds. Iterations of one repeat resemble each other more than those of another, so that each resample draws repeats
first, and then iterations within each drawn repeat, both with replacement and as many as there are. Its statistic is

    median over repeats of (median over the repeat's iterations)

and an interval of confidence c runs from the (1 - c)/2 to the (1 + c)/2 quantile of the resampled statistics.

Fewer than ``FEWEST_REPEATS`` repeats have no interval, however many iterations each has: iterations of one repeat share
its connections, its processes and its moment. They show how steady that repeat was, and not where the next lies.

Source: B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap, Chapman & Hall 1993: the percentile interval in
chapter 13; A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application, Cambridge 1997, section 3.8:
hierarchical data.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
CONFIDENCE = 0.95

FEWEST_REPEATS = 3
"""Fewer have no interval: that all of B's are slower than all of A's happens by chance once in 2 times with one repeat
each, once in 6 with two, and once in 20 with three."""

ENOUGH_REPEATS = 5
"""From here on an interval holds the true median about as often as it says."""

Trials = Sequence[Sequence[float]]
"""The iteration times of every repeat; a repeat without any counts for nothing."""

_Times = npt.NDArray[np.float64]

_DRAWN_AT_ONCE = 2**22
"""Iteration times in memory at a time."""


def median_of_medians(trials: Trials) -> float | None:
    """Return the statistic: the median over repeats of each repeat's median; None without a measurement."""
    medians = [float(np.median(times)) for times in trials if len(times)]
    return float(np.median(medians)) if medians else None


def resampled_medians(trials: Trials, generator: np.random.Generator, *, repeats: int | None = None) -> _Times:
    """Return ``RESAMPLES`` values of the statistic, each of a resample of ``repeats`` repeats.

    None means as many repeats as measured something. Raises ValueError without a measurement.
    """
    measured = [np.asarray(times, np.float64) for times in trials if len(times)]
    if not measured:
        raise ValueError("no measurement to draw from")
    drawn = generator.integers(len(measured), size=(RESAMPLES, len(measured) if repeats is None else repeats))
    medians = np.empty(drawn.shape)
    for number, times in enumerate(measured):
        here = drawn == number
        medians[here] = _resampled_median(times, int(here.sum()), generator)
    resampled: _Times = np.median(medians, axis=1)
    return resampled


def _resampled_median(times: _Times, resamples: int, generator: np.random.Generator) -> _Times:
    """Return the medians of that many resamples of one repeat's iteration times."""
    at_once = max(1, _DRAWN_AT_ONCE // len(times))
    pieces = [
        np.median(times[generator.integers(len(times), size=(min(at_once, resamples - start), len(times)))], axis=1)
        for start in range(0, resamples, at_once)
    ]
    return np.concatenate(pieces) if pieces else np.empty(0)


def median_interval(trials: Trials, confidence: float = CONFIDENCE, seed: int = 0) -> tuple[float, float] | None:
    """Return the interval of the statistic in seconds; None for fewer than ``FEWEST_REPEATS`` repeats.

    The same seed gives the same interval.
    """
    if not has_interval(trials):
        return None
    return _quantile_interval(resampled_medians(trials, np.random.default_rng(seed)), confidence)


def ratio_interval(a: Trials, b: Trials, confidence: float = CONFIDENCE, seed: int = 0) -> tuple[float, float] | None:
    """Return the interval of the statistic of ``b`` over that of ``a``, the two resampled independently.

    None if either has fewer than ``FEWEST_REPEATS`` repeats. The same seed gives the same interval.
    """
    if not (has_interval(a) and has_interval(b)):
        return None
    generator = np.random.default_rng(seed)
    of_a, of_b = resampled_medians(a, generator), resampled_medians(b, generator)
    return _quantile_interval(of_b / of_a, confidence)


def has_interval(trials: Trials) -> bool:
    """Return whether enough repeats measured something to show how far repeats lie apart."""
    return sum(1 for times in trials if len(times)) >= FEWEST_REPEATS


def _quantile_interval(values: _Times, confidence: float) -> tuple[float, float]:
    """Return the central interval that holds that share of the values."""
    low, high = np.quantile(values, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)
