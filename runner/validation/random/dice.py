"""Draw at random, but alike on every machine: choices that follow from a text alone."""

import random
from collections.abc import Sequence
from typing import TypeVar

Value = TypeVar("Value")


class Dice:
    """A sequence of choices that follows from ``seed``, whatever the machine and the version of Python.

    Everything is made of ``random()``, of which alone Python promises that a seed gives the same for ever.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random  # noqa: S311 - nothing is kept secret by it

    def chance(self, probability: float) -> bool:
        """Return whether something of that probability happens."""
        return self._random() < probability

    def one(self, values: Sequence[Value]) -> Value:
        """Return one of the values, each as likely as any other."""
        return values[int(self._random() * len(values))]

    def weighted(self, values: Sequence[tuple[Value, int]]) -> Value:
        """Return one of the values, each as often as the whole number beside it says."""
        return self.one([value for value, times in values for _ in range(times)])

    def whole(self, least: int, most: int) -> int:
        """Return a whole number between two bounds, which may be either."""
        return least + int(self._random() * (most - least + 1))

    def shuffled(self, values: Sequence[Value]) -> list[Value]:
        """Return the values in any order."""
        left, drawn = list(values), []
        while left:
            drawn.append(left.pop(int(self._random() * len(left))))
        return drawn
