"""Draw arrivals from a seed: gaps of a Poisson process, or of a Gamma distribution for burstier or steadier ones.

Arrivals and lengths come from two random streams of the seed. Changing the rate keeps the length of every request and
the pattern of gaps; changing the lengths keeps the arrivals. The same seed gives the same requests with the same
version of numpy.
"""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from wanbed.workloads.prefill.request import Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from wanbed.workloads.prefill.sources.lengths import Lengths

LEAST_CV = 0.01
MOST_CV = 100.0

_DRAWN_AT_ONCE = 1024

DrawGaps = Callable[["Generator", int], "NDArray[np.float64]"]


def poisson(rate_per_s: float, lengths: "Lengths", *, seed: int, duration_ns: int | None = None) -> Iterator[Request]:
    """Yield the requests of a Poisson process: all gaps are exponential, including the one before the first arrival.

    Yield the arrivals before ``duration_ns``, or without end if it is None. Raises ValueError naming the argument.
    """
    mean_gap_ns = _mean_gap_ns(rate_per_s)
    return _requests(lambda random, count: random.exponential(mean_gap_ns, count), lengths, seed, duration_ns)


def gamma(
    rate_per_s: float, cv: float, lengths: "Lengths", *, seed: int, duration_ns: int | None = None
) -> Iterator[Request]:
    """Yield requests with Gamma gaps of shape 1 / cv^2 and mean 1 / rate. ``cv`` is standard deviation / mean.

    With ``cv`` above 1 arrivals are burstier than those of a Poisson process (cv = 1), below 1 they are steadier. The
    gap before the first arrival has the same distribution, so with a mean gap t a duration T has about
    T / t + (cv^2 - 1) / 2 arrivals.

    Yield the arrivals before ``duration_ns``, or without end if it is None. Raises ValueError naming the argument;
    ``cv`` is 0.01 to 100.
    """
    mean_gap_ns = _mean_gap_ns(rate_per_s)
    if not LEAST_CV <= cv <= MOST_CV:
        raise ValueError(f"cv: {cv} is not in {LEAST_CV:g} to {MOST_CV:g}")
    shape = 1 / cv**2
    return _requests(lambda random, count: random.gamma(shape, mean_gap_ns / shape, count), lengths, seed, duration_ns)


def _mean_gap_ns(rate_per_s: float) -> float:
    if not (rate_per_s > 0 and math.isfinite(rate_per_s) and math.isfinite(1e15 / rate_per_s)):
        raise ValueError(f"rate_per_s: {rate_per_s} is no rate above zero")
    return 1e9 / rate_per_s


def _requests(draw_gaps: DrawGaps, lengths: "Lengths", seed: int, duration_ns: int | None) -> Iterator[Request]:
    if seed < 0:
        raise ValueError(f"seed: {seed} is negative")
    if duration_ns is not None and duration_ns < 0:
        raise ValueError(f"duration_ns: {duration_ns} is negative")
    # Whoever reads an experiment's file needs the bounds above, and draws nothing.
    import numpy as np  # noqa: PLC0415

    for_gaps, for_lengths = (np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(2))
    return _endless_or_until(duration_ns, draw_gaps, for_gaps, lengths, for_lengths)


def _endless_or_until(
    duration_ns: int | None, draw_gaps: DrawGaps, for_gaps: "Generator", lengths: "Lengths", for_lengths: "Generator"
) -> Iterator[Request]:
    number = arrival_ns = 0
    while True:
        gaps = draw_gaps(for_gaps, _DRAWN_AT_ONCE).tolist()
        prompts, outputs = lengths.draw(for_lengths, _DRAWN_AT_ONCE)
        for gap_ns, prompt_tokens, output_tokens in zip(gaps, prompts.tolist(), outputs.tolist(), strict=True):
            # Python's integers do not overflow; at the lowest rate a rare gap exceeds 64 bits.
            arrival_ns += round(gap_ns)
            if duration_ns is not None and arrival_ns >= duration_ns:
                return
            yield Request(number, arrival_ns, prompt_tokens, output_tokens)
            number += 1
