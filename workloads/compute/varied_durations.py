"""Draw the duration of each action of one GPU, where compute times vary from one action to the next.

A draw depends only on the seed, the repeat, the pipeline, the stage, the iteration, the kind of action and its
microbatch, so a simulation and a replayed rank draw the same durations, in whatever order actions run. For each of the
other six a generator of its own is seeded, Python's ``random.Random`` (Mersenne Twister), with a text of them; the
microbatches take its draws in order. The factors of ``Jitter`` have mean 1 and the standard deviation ``spread``:

- normal: 1 + spread x N(0, 1)
- lognormal: exp(N(mu, sigma)) with sigma^2 = ln(1 + spread^2), mu = -sigma^2 / 2
- gamma: shape 1 / spread^2, scale spread^2
- uniform: from 1 - sqrt(3) x spread to 1 + sqrt(3) x spread

Only the standard library is used, because every rank that replays imports this module.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random


class Distribution(StrEnum):
    """The distributions of a factor with mean 1."""

    NORMAL = "normal"
    LOGNORMAL = "lognormal"
    GAMMA = "gamma"
    UNIFORM = "uniform"


MAX_SPREADS = {Distribution.NORMAL: 0.3, Distribution.UNIFORM: 0.57, Distribution.LOGNORMAL: 1.0, Distribution.GAMMA: 1}
"""The largest spreads at which factors below zero never occur, or (normal) once in 2,300 draws."""


@dataclass(frozen=True)
class Jitter:
    """The distribution of the factors on durations. Raise ValueError for a spread that it cannot have."""

    distribution: Distribution
    spread: float

    def __post_init__(self) -> None:
        if not 0 < self.spread <= MAX_SPREADS[self.distribution]:
            raise ValueError(f"spread: {self.spread} is no spread of a {self.distribution} distribution")


@dataclass(frozen=True)
class Variation:
    """The variation of one GPU's durations in one trial.

    ``jitter`` multiplies durations. Instead, ``measured_ns`` has for each kind of action the durations that it is drawn
    from, each equally likely. ``microbatches`` is how many draws are made at once, which changes none of them.
    """

    seed: int
    repeat: int
    pipeline: int
    stage: int
    microbatches: int
    jitter: Jitter | None = None
    measured_ns: dict[str, list[int]] = field(default_factory=dict)


class DurationDraws:
    """Draws the durations of one GPU's actions. It keeps the draws of one iteration at a time."""

    def __init__(self, variation: Variation) -> None:
        self._variation = variation
        self._iteration = -1
        self._drawn: dict[str, list[float]] = {}

    def duration_ns(self, iteration: int, kind: str, microbatch: int, usual_ns: int) -> int:
        """Return the duration of an action whose usual one is ``usual_ns``, at least 1 ns.

        An action that usually takes no time takes none. ``microbatch`` is negative for what concerns none.
        """
        if not usual_ns:
            return 0
        if iteration != self._iteration:
            self._iteration, self._drawn = iteration, {}
        drawn, position = self._drawn.get(kind, ()), max(microbatch, 0)
        if position >= len(drawn):
            count = 1 if microbatch < 0 else max(self._variation.microbatches, 2 * position)
            drawn = self._drawn[kind] = self._draw(kind, count)
        measured_ns = self._variation.measured_ns.get(kind)
        if measured_ns is not None:
            return max(measured_ns[int(drawn[position] * len(measured_ns))], 1)
        return max(round(usual_ns * drawn[position]), 1)

    def _draw(self, kind: str, count: int) -> list[float]:
        """Return the first draws of a kind in this iteration: factors, or positions of measured durations in [0, 1)."""
        own = self._variation
        key = f"{own.seed}/{own.repeat}/{own.pipeline}/{own.stage}/{self._iteration}/{kind}"
        generator = Random(key)  # noqa: S311 - nothing is kept secret by it
        if own.measured_ns.get(kind) is not None:
            return [generator.random() for _ in range(count)]
        return [1.0] * count if own.jitter is None else _factors(own.jitter, generator, count)


def _factors(jitter: Jitter, generator: Random, count: int) -> list[float]:
    spread = jitter.spread
    match jitter.distribution:
        case Distribution.NORMAL:
            return [generator.normalvariate(1.0, spread) for _ in range(count)]
        case Distribution.LOGNORMAL:
            variance = math.log1p(spread**2)
            return [generator.lognormvariate(-variance / 2, math.sqrt(variance)) for _ in range(count)]
        case Distribution.GAMMA:
            return [generator.gammavariate(spread**-2, spread**2) for _ in range(count)]
        case Distribution.UNIFORM:
            reach = math.sqrt(3) * spread
            return [generator.uniform(1 - reach, 1 + reach) for _ in range(count)]
