"""Draw the lengths of prompts and outputs for arrivals that are drawn too, and so have no lengths from a trace."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from wanbed.workloads.prefill.request import Request

TokenCounts = NDArray[np.int64]


class Lengths(Protocol):
    """A distribution of the lengths of requests."""

    def draw(self, random: Generator, count: int) -> tuple[TokenCounts, TokenCounts]:
        """Draw the prompt and the output tokens of ``count`` requests, each at least 1."""
        ...


@dataclass(frozen=True)
class FixedLengths:
    """Gives every request the same length. Raises ValueError naming the field."""

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        _check_counts(prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens)

    def draw(self, random: Generator, count: int) -> tuple[TokenCounts, TokenCounts]:
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

    def draw(self, random: Generator, count: int) -> tuple[TokenCounts, TokenCounts]:
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

    def draw(self, random: Generator, count: int) -> tuple[TokenCounts, TokenCounts]:
        """Draw all prompts, then all outputs, independently of each other."""
        return (
            self._drawn(random, count, self.prompt_median, self.prompt_spread),
            self._drawn(random, count, self.output_median, self.output_spread),
        )

    def _drawn(self, random: Generator, count: int, median: int, spread: float) -> TokenCounts:
        logarithms = math.log(median) + math.log(spread) * random.standard_normal(count)
        # Clip the logarithm, so that exp never overflows.
        lengths = np.rint(np.exp(np.minimum(logarithms, math.log(self.most_tokens))))
        return np.clip(lengths, 1, self.most_tokens).astype(np.int64)


def _check_counts(**counts: int) -> None:
    for name, tokens in counts.items():
        if tokens < 1:
            raise ValueError(f"{name}: {tokens} is below 1")
