"""Make random choices that are the same on every machine for the same seed."""

import random
from collections.abc import Sequence
from typing import TypeVar

Value = TypeVar("Value")


class Dice:
    """A sequence of random choices that depends only on ``seed``, not on the machine or the version of Python.

    All choices use ``random()``, the only method for which Python guarantees the same sequence in every version.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random  # noqa: S311 - nothing is kept secret by it

    def chance(self, probability: float) -> bool:
        """Return True with that probability."""
        return self._random() < probability

    def one(self, values: Sequence[Value]) -> Value:
        """Return one of the values, all equally likely."""
        return values[int(self._random() * len(values))]

    def weighted(self, values: Sequence[tuple[Value, int]]) -> Value:
        """Return one of the values, with the integer beside it as its weight."""
        return self.one([value for value, times in values for _ in range(times)])

    def whole(self, least: int, most: int) -> int:
        """Return a whole number from ``least`` to ``most``, both included."""
        return least + int(self._random() * (most - least + 1))

    def shuffled(self, values: Sequence[Value]) -> list[Value]:
        """Return the values in random order."""
        left, drawn = list(values), []
        while left:
            drawn.append(left.pop(int(self._random() * len(left))))
        return drawn
