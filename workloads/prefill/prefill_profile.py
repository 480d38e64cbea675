"""The prefill profile of a GPU: a time linear and quadratic in tokens, with the error of the fit."""

import math
from bisect import bisect_right
from dataclasses import dataclass, fields


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
