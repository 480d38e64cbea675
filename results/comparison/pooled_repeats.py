"""Estimate the uncertainty of figures with many measurements in few repeats, by the bootstrap over repeats alone.

Each resample draws repeats with replacement, as many as there are. The measurements of one repeat stay together, since
they depend on each other: requests of one trial wait for each other, and times of one trial are consecutive.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wanbed.results.metrics.bootstrap import CONFIDENCE, FEWEST_REPEATS

RESAMPLES = 1_000

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
    drawn = np.random.default_rng(0).multinomial(repeats, [1 / repeats] * repeats, size=RESAMPLES)
    different, times = np.unique(drawn, axis=0, return_counts=True)
    return different, times


def _ends(found: npt.NDArray[np.float64], times: npt.NDArray[np.int64]) -> Interval:
    low, high = np.quantile(np.repeat(found, times, axis=0), ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2), axis=0)
    return low, high
