"""Fit a prefill profile to measured times, and compute the error of any profile on measured times."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from wanbed.workloads.prefill.prefill_profile import FitError, PrefillProfile

if TYPE_CHECKING:
    import numpy as np

Points = Sequence[tuple[int, int]]
"""Measured prompts: the tokens of each, and the nanoseconds that it took as one chunk in all layers."""

LEAST_SIZES = 3
"""A profile has three figures, so at least this many different sizes are needed to fit them."""


class TimedChunk(NamedTuple):
    """A measured chunk: ``tokens`` tokens after ``prior_tokens`` took ``time_ns`` in all layers."""

    tokens: int
    prior_tokens: int
    time_ns: int


def fit_chunks(chunks: Sequence[TimedChunk], layers: int, *, source: str) -> PrefillProfile:
    """Fit a profile to measured chunks of prompts in ``layers`` layers. A whole prompt is a chunk without prior tokens.

    The fit minimizes the sum of squared relative errors over the chunks, with no figure below zero. All chunks have
    equal weight; repeat one to give it more. The profile's ``error`` is that on these chunks. Use ``error_on`` for
    held-out prompts.

    Raises ValueError naming the argument: for fewer than three different chunks, or times that do not grow with tokens.
    """
    import numpy as np  # noqa: PLC0415 - most profiles are read, and few are fitted

    _check([(chunk.tokens, chunk.time_ns) for chunk in chunks], layers)
    sizes = len({(chunk.tokens, chunk.prior_tokens) for chunk in chunks})
    if sizes < LEAST_SIZES:
        raise ValueError(f"points: prompts of {sizes} sizes, {LEAST_SIZES} are wanted to fit three figures")
    tokens, prior_tokens, times_ns = np.array(chunks, dtype=np.float64).T
    pairs = tokens * (prior_tokens + tokens / 2)
    terms = np.stack([np.ones_like(tokens), tokens, pairs], axis=1) * layers / times_ns[:, None]
    figures = _least_squares_above_zero(terms)
    if figures[1] == figures[2] == 0:
        raise ValueError("points: their times do not grow with tokens, so no profile fits")
    fitted = PrefillProfile(*figures, source=source, measured=True)
    return replace(fitted, error=_error(fitted, chunks, layers))


def error_on(profile: PrefillProfile, points: Points, layers: int) -> FitError:
    """Return the profile's error on measured times of a model of ``layers`` layers.

    Raises ValueError naming the argument.
    """
    _check(points, layers)
    return _error(profile, _whole_prompts(points), layers)


def _whole_prompts(points: Points) -> list[TimedChunk]:
    return [TimedChunk(tokens, 0, time_ns) for tokens, time_ns in points]


def _error(profile: PrefillProfile, chunks: Sequence[TimedChunk], layers: int) -> FitError:
    errors = sorted(
        abs(profile.chunk_ns(layers, tokens, prior_tokens) - time_ns) / time_ns
        for tokens, prior_tokens, time_ns in chunks
    )
    sizes = [chunk.tokens for chunk in chunks]
    return FitError(
        points=len(chunks),
        least_tokens=min(sizes),
        most_tokens=max(sizes),
        mean=sum(errors) / len(errors),
        p95=errors[math.ceil(0.95 * len(errors)) - 1],
        max=errors[-1],
    )


def _least_squares_above_zero(terms: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> tuple[float, float, float]:
    """Return the non-negative figures for which every row of ``terms`` @ figures is nearest to 1 (least squares).

    At the optimum some figures are zero, and the others solve the unconstrained problem without those. With only three
    figures, try every subset.
    """
    import numpy as np  # noqa: PLC0415 - as in fit_chunks

    best_residual, best = math.inf, (0.0, 0.0, 0.0)
    ones = np.ones(len(terms))
    # Normalize the columns: tokens squared are ten million times the constant.
    sizes = np.linalg.norm(terms, axis=0)
    for count in range(1, terms.shape[1] + 1):
        for chosen in map(list, combinations(range(terms.shape[1]), count)):
            solution = np.linalg.lstsq(terms[:, chosen] / sizes[chosen], ones)[0] / sizes[chosen]
            residual = float(np.sum((terms[:, chosen] @ solution - ones) ** 2))
            if np.all(solution >= 0) and residual < best_residual:
                figures = [0.0, 0.0, 0.0]
                for place, figure in zip(chosen, solution.tolist(), strict=True):
                    figures[place] = figure
                best_residual, best = residual, (figures[0], figures[1], figures[2])
    return best


def _check(points: Points, layers: int) -> None:
    if layers < 1:
        raise ValueError(f"layers: {layers} is below 1")
    if not points:
        raise ValueError("points: there are none")
    for tokens, time_ns in points:
        if tokens < 1 or time_ns < 1:
            raise ValueError(f"points: {tokens} tokens in {time_ns} ns are no prompt that was measured")
