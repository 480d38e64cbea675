"""Estimate the uncertainty of figures over repeats, by the hierarchical percentile bootstrap.

The measurements of one variant in one sweep point are a sequence of repeats, each a sequence of iteration times in
seconds. Iterations of the same repeat resemble each other more than iterations of different repeats. Each resample
therefore draws repeats first, and then iterations within each drawn repeat, both with replacement and as many as there
are. The statistic is

    median over repeats of (median over the repeat's iterations)

and an interval of confidence c runs from the (1 - c)/2 to the (1 + c)/2 quantile of the resampled statistics.

Fewer than ``FEWEST_REPEATS`` repeats have no interval, however many iterations each has. Iterations of one repeat share
its connections, its processes and its time of day: they show how steady that repeat was, not where the next one lies.

Source: B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap, Chapman & Hall 1993: the percentile interval in
chapter 13; A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application, Cambridge 1997, section 3.8:
hierarchical data.

Figures with many measurements in few repeats, such as percentiles, are drawn over repeats alone. The measurements of
one repeat stay together there, since they depend on each other: requests of one trial wait for each other, and times of
one trial are consecutive.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000

CONFIDENCE = 0.95

FEWEST_REPEATS = 3
"""The fewest repeats that have an interval. All repeats of B are slower than all of A by chance once in 2 times with
one repeat each, once in 6 times with two, and once in 20 times with three."""

ENOUGH_REPEATS = 5
"""With at least this many repeats, an interval contains the true median about as often as its confidence states."""

Trials = Sequence[Sequence[float]]
"""The iteration times of every repeat, in seconds; a repeat without any is ignored."""

_Times = npt.NDArray[np.float64]

_DRAWN_AT_ONCE = 2**22
"""The most iteration times that are held in memory at a time."""


def median_of_medians(trials: Trials) -> float | None:
    """Return the statistic: the median over repeats of each repeat's median; None without a measurement."""
    medians = [float(np.median(times)) for times in trials if len(times)]
    return float(np.median(medians)) if medians else None


def resampled_medians(trials: Trials, generator: np.random.Generator, *, repeats: int | None = None) -> _Times:
    """Return ``RESAMPLES`` values of the statistic, each of a resample of ``repeats`` repeats.

    If ``repeats`` is None, draw as many repeats as have measurements. Raise ValueError if there is no measurement.
    """
    measured = [np.asarray(times, np.float64) for times in trials if len(times)]
    if not measured:
        raise ValueError("no measurement to draw from")
    drawn = generator.integers(len(measured), size=(RESAMPLES, len(measured) if repeats is None else repeats))
    medians = np.empty(drawn.shape)
    for number, times in enumerate(measured):
        own = drawn == number
        medians[own] = _resampled_median(times, int(own.sum()), generator)
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
    """Return the interval of the ratio of ``b``'s statistic to ``a``'s; the two are resampled independently.

    None if either has fewer than ``FEWEST_REPEATS`` repeats. The same seed gives the same interval.
    """
    if not (has_interval(a) and has_interval(b)):
        return None
    generator = np.random.default_rng(seed)
    of_a, of_b = resampled_medians(a, generator), resampled_medians(b, generator)
    return _quantile_interval(of_b / of_a, confidence)


def has_interval(trials: Trials) -> bool:
    """Return whether enough repeats have measurements to show how much repeats differ."""
    return sum(1 for times in trials if len(times)) >= FEWEST_REPEATS


def _quantile_interval(values: _Times, confidence: float) -> tuple[float, float]:
    """Return the central interval that contains the share ``confidence`` of the values."""
    low, high = np.quantile(values, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


_POOLED_RESAMPLES = 1_000

Interval = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""The low and the high ends of the intervals, with one entry per figure."""


def percentile_intervals(repeats: Sequence[npt.NDArray[np.int64]], percents: Sequence[int]) -> Interval | None:
    """Return the 95 % intervals of percentiles, by nearest rank, of the pooled values of all repeats.

    None for fewer than ``FEWEST_REPEATS`` repeats that have a value.
    """
    measured = [values for values in repeats if len(values)]
    if len(measured) < FEWEST_REPEATS:
        return None
    values = np.concatenate(measured)
    owner = np.repeat(np.arange(len(measured)), [len(own) for own in measured])
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    drawn, times = _draws(len(measured))
    found = np.empty((len(drawn), len(percents)))
    for number, counts in enumerate(drawn):
        below = np.cumsum(counts[owner])
        ranks = np.maximum(1, -(-np.asarray(percents) * below[-1] // 100))
        found[number] = values[np.searchsorted(below, ranks)]
    return _ends(found, times)


def moment_intervals(repeats: npt.NDArray[np.float64]) -> Interval | None:
    """Return the 95 % intervals of the median over repeats at each point in time.

    ``repeats`` has a row per repeat and a column per point in time. None for fewer than ``FEWEST_REPEATS`` repeats.
    """
    if len(repeats) < FEWEST_REPEATS:
        return None
    drawn, times = _draws(len(repeats))
    numbers = np.arange(len(repeats))
    return _ends(np.array([np.median(repeats[np.repeat(numbers, counts)], axis=0) for counts in drawn]), times)


def _draws(repeats: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how often each repeat is in each distinct resample, and how often that resample was drawn."""
    drawn = np.random.default_rng(0).multinomial(repeats, [1 / repeats] * repeats, size=_POOLED_RESAMPLES)
    different, times = np.unique(drawn, axis=0, return_counts=True)
    return different, times


def _ends(found: npt.NDArray[np.float64], times: npt.NDArray[np.int64]) -> Interval:
    low, high = np.quantile(np.repeat(found, times, axis=0), ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2), axis=0)
    return low, high
