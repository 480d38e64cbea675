"""Draw requests from a seed: their arrivals, and the lengths of their prompts and outputs.

The gaps between arrivals are those of a Poisson process, or of a Gamma distribution for burstier or steadier ones.
Arrivals and lengths come from two random streams of the seed. Changing the rate keeps the length of every request and
the pattern of gaps; changing the lengths keeps the arrivals. The same seed gives the same requests with the same
version of numpy.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.bubbletea.request_source import LEAST_CV, MOST_CV

_DRAWN_AT_ONCE = 1024

_DrawGaps = Callable[[Generator, int], NDArray[np.float64]]


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


def _requests(draw_gaps: _DrawGaps, lengths: "Lengths", seed: int, duration_ns: int | None) -> Iterator[Request]:
    if seed < 0:
        raise ValueError(f"seed: {seed} is negative")
    if duration_ns is not None and duration_ns < 0:
        raise ValueError(f"duration_ns: {duration_ns} is negative")
    for_gaps, for_lengths = (np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(2))
    return _endless_or_until(duration_ns, draw_gaps, for_gaps, lengths, for_lengths)


def _endless_or_until(
    duration_ns: int | None, draw_gaps: _DrawGaps, for_gaps: Generator, lengths: "Lengths", for_lengths: Generator
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


_TokenCounts = NDArray[np.int64]


class Lengths(Protocol):
    """A distribution of the lengths of requests."""

    def draw(self, random: Generator, count: int) -> tuple[_TokenCounts, _TokenCounts]:
        """Draw the prompt and the output tokens of ``count`` requests, each at least 1."""
        ...


@dataclass(frozen=True)
class FixedLengths:
    """Gives every request the same length. Raises ValueError naming the field."""

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        _check_counts(prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens)

    def draw(self, random: Generator, count: int) -> tuple[_TokenCounts, _TokenCounts]:
        """Return ``count`` times the fixed lengths."""
        return np.full(count, self.prompt_tokens), np.full(count, self.output_tokens)


class EmpiricalLengths:
    """Lengths drawn from a trace's requests with replacement. Prompt and output of a request stay together.

    Raises ValueError if there are no requests.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        pairs = [(request.prompt_tokens, request.output_tokens) for request in requests]
        if not pairs:
            raise ValueError("requests: there are none to draw lengths from")
        self._prompts, self._outputs = np.array(pairs, dtype=np.int64).T

    def draw(self, random: Generator, count: int) -> tuple[_TokenCounts, _TokenCounts]:
        """Draw ``count`` requests of the trace with equal probability, and return their lengths."""
        chosen = random.integers(len(self._prompts), size=count)
        return self._prompts[chosen], self._outputs[chosen]


@dataclass(frozen=True)
class LogNormalLengths:
    """Prompts and outputs, each from a log-normal distribution, rounded and clipped to 1 to ``most_tokens``.

    A ``spread`` is the geometric standard deviation: two thirds of the lengths lie between median / spread and
    median x spread, and with a spread of 1 all lengths are the median. Raises ValueError naming the field.
    """

    prompt_median: int
    prompt_spread: float
    output_median: int
    output_spread: float
    most_tokens: int = 131_072

    def __post_init__(self) -> None:
        _check_counts(prompt_median=self.prompt_median, output_median=self.output_median, most_tokens=self.most_tokens)
        for name, spread in (("prompt_spread", self.prompt_spread), ("output_spread", self.output_spread)):
            if not (spread >= 1 and math.isfinite(spread)):
                raise ValueError(f"{name}: {spread} is below 1 or not finite; with 1 every length is the median")

    def draw(self, random: Generator, count: int) -> tuple[_TokenCounts, _TokenCounts]:
        """Draw all prompts, then all outputs, independently of each other."""
        return (
            self._drawn(random, count, self.prompt_median, self.prompt_spread),
            self._drawn(random, count, self.output_median, self.output_spread),
        )

    def _drawn(self, random: Generator, count: int, median: int, spread: float) -> _TokenCounts:
        logarithms = math.log(median) + math.log(spread) * random.standard_normal(count)
        # Clip the logarithm, so that exp never overflows.
        lengths = np.rint(np.exp(np.minimum(logarithms, math.log(self.most_tokens))))
        return np.clip(lengths, 1, self.most_tokens).astype(np.int64)


def _check_counts(**counts: int) -> None:
    for name, tokens in counts.items():
        if tokens < 1:
            raise ValueError(f"{name}: {tokens} is below 1")
