"""The prefill profile of a GPU: a time linear and quadratic in tokens, fitted to measured times, and its error."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class FitError:
    """The relative error |profile - measured| / measured of a profile over ``points`` measured prompts or chunks.

    ``p95`` is one of these errors: the smallest that 95 % of the points do not exceed. The points had ``least_tokens``
    to ``most_tokens``; outside that range the profile extrapolates.
    """

    points: int
    least_tokens: int
    most_tokens: int
    mean: float
    p95: float
    max: float


@dataclass(frozen=True)
class PrefillProfile:
    """The times of one layer, in nanoseconds (possibly fractional). Raises ValueError naming the field.

    A chunk of n tokens after p takes ``fixed_ns + per_token_ns x n + per_token_pair_ns x n (p + n / 2)`` in each layer.
    ``source`` names the origin of the figures. ``error`` is None where the profile was not fitted to measurements.
    """

    fixed_ns: float
    per_token_ns: float
    per_token_pair_ns: float
    source: str
    measured: bool
    error: FitError | None = None

    def __post_init__(self) -> None:
        for field in fields(self)[:3]:
            value = getattr(self, field.name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{field.name}: {value} is no time")
        if self.per_token_ns == self.per_token_pair_ns == 0:
            raise ValueError("per_token_ns: 0, and per_token_pair_ns is 0 too: at least one must be above 0")

    def chunk_ns(self, layers: int, tokens: int, prior_tokens: int) -> int:
        """Return how long ``tokens`` tokens after ``prior_tokens`` take in ``layers`` layers, in ns, rounded up.

        The time never decreases with more tokens. A prompt in chunks takes as long as at once, plus ``fixed_ns`` a
        layer for each further chunk, and a rounding of less than 1 ns a chunk. Raises ValueError naming the argument.
        """
        if tokens < 1:
            raise ValueError(f"tokens: {tokens} is below 1")
        _check(layers, prior_tokens)
        pairs = tokens * (2 * prior_tokens + tokens) / 2
        return math.ceil(layers * (self.fixed_ns + self.per_token_ns * tokens + self.per_token_pair_ns * pairs))

    def largest_chunk(self, layers: int, prior_tokens: int, time_ns: int) -> int:
        """Return the largest number of tokens whose ``chunk_ns`` is at most ``time_ns``, 0 if there is none.

        Raises ValueError naming the argument.
        """
        _check(layers, prior_tokens)

        def time_of(tokens: int) -> int:
            return self.chunk_ns(layers, tokens, prior_tokens)

        if time_of(1) > time_ns:
            return 0
        # The quadratic's root may be off by rounding, so search on both sides of it with the exact time.
        fitting = max(1, self._root(prior_tokens, time_ns / layers - self.fixed_ns))
        step = 1
        while time_of(fitting) > time_ns:
            fitting, step = max(1, fitting - step), 2 * step
        beyond, step = fitting + 1, 1
        while time_of(beyond) <= time_ns:
            fitting, beyond, step = beyond, beyond + step, 2 * step
        return fitting - 1 + bisect_right(range(fitting, beyond), time_ns, key=time_of)

    def _root(self, prior_tokens: int, left_ns: float) -> int:
        """Estimate how many tokens take ``left_ns`` in one layer, the fixed time not included."""
        if left_ns <= 0:
            return 0
        # This form of the root loses no precision where the quadratic term is small.
        linear_ns = self.per_token_ns + self.per_token_pair_ns * prior_tokens
        return math.floor(2 * left_ns / (linear_ns + math.sqrt(linear_ns**2 + 2 * self.per_token_pair_ns * left_ns)))


UNMEASURED = PrefillProfile(0.0, 1.0, 0.0, source="to be measured before the trial", measured=False)
"""Placeholder where torch computes the prefill, until its times have been measured. Never plan with it."""


def _check(layers: int, prior_tokens: int) -> None:
    if layers < 1:
        raise ValueError(f"layers: {layers} is below 1")
    if prior_tokens < 0:
        raise ValueError(f"prior_tokens: {prior_tokens} is negative")


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

    _check_points([(chunk.tokens, chunk.time_ns) for chunk in chunks], layers)
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
    _check_points(points, layers)
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


def _check_points(points: Points, layers: int) -> None:
    if layers < 1:
        raise ValueError(f"layers: {layers} is below 1")
    if not points:
        raise ValueError("points: there are none")
    for tokens, time_ns in points:
        if tokens < 1 or time_ns < 1:
            raise ValueError(f"points: {tokens} tokens in {time_ns} ns are no prompt that was measured")
