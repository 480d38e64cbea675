"""Decide which parts make each sum of a star, by the order in which they come. No clock and no network.

Sums are counted from 0, and each replica gives one part for each of them, in order. Sum n is complete once ``quorum``
parts for n have come, or those of all replicas that are left. A part for n that comes later counts in the next sum of
the same fragment that is open, beside the parts that are for that one; a quorum does not count it. Behind the last sum
there is none, and the part is dropped.

The simulator and the replica that gathers use the same object, so that the same order gives the same sums.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple


class StarPart(NamedTuple):
    """The part that a replica gives for sum ``number``."""

    replica: int
    number: int


@dataclass(frozen=True)
class StarSum:
    """Sum ``number`` is complete: these parts make it, in the order in which they came."""

    number: int
    parts: tuple[StarPart, ...]

    @property
    def late(self) -> int:
        """The number of its parts that were meant for an earlier sum."""
        return sum(part.number < self.number for part in self.parts)


class QuorumRounds:
    """The sums of one star. ``count`` is how many there are; sum n is of fragment n mod ``fragments``.

    Raises ValueError for a quorum that is not 1 to the number of ``replicas``.
    """

    def __init__(self, replicas: Collection[int], quorum: int, count: int, fragments: int = 1) -> None:
        if not 1 <= quorum <= len(replicas):
            raise ValueError(f"quorum: {quorum} is not 1 to {len(replicas)}, the number of replicas")
        self._left = set(replicas)
        self._quorum = quorum
        self._count = count
        self._fragments = fragments
        self._parts: dict[int, list[StarPart]] = {}
        self._open = 0
        self.dropped: list[StarPart] = []
        """Parts that came after the last sum of their fragment."""

    @property
    def left(self) -> frozenset[int]:
        """The replicas that are left."""
        return frozenset(self._left)

    def give(self, part: StarPart) -> StarSum | None:
        """Handle that a part has come. Return the sum that it completes, None if it completes none.

        Raise ValueError for a part of a sum that cannot be open yet or does not exist.
        """
        if not 0 <= part.number <= self._open or part.number >= self._count:
            raise ValueError(f"replica {part.replica} gives a part for sum {part.number}, and {self._open} is open")
        behind = self._open - part.number
        counts_in = part.number + -(-behind // self._fragments) * self._fragments
        if counts_in >= self._count:
            self.dropped.append(part)
            return None
        self._parts.setdefault(counts_in, []).append(part)
        return self._completed()

    def lose(self, replica: int) -> StarSum | None:
        """Handle that a replica gives no further part. Return the sum that is complete without it, None if none is."""
        self._left.discard(replica)
        return self._completed()

    def rejoin(self, replica: int) -> tuple[StarPart, ...]:
        """Handle that a lost replica gives parts again, from the open sum on at the latest.

        Parts that it gave before, and that no sum has yet, count no more, because it may give them again. Return them.
        """
        self._left.add(replica)
        dropped = tuple(part for parts in self._parts.values() for part in parts if part.replica == replica)
        for number, parts in self._parts.items():
            self._parts[number] = [part for part in parts if part.replica != replica]
        return dropped

    def _completed(self) -> StarSum | None:
        parts = self._parts.get(self._open, [])
        given = {part.replica for part in parts if part.number == self._open}
        if not given or len(given) < min(self._quorum, len(given | self._left)):
            return None
        found = StarSum(self._open, tuple(parts))
        del self._parts[self._open]
        self._open += 1
        return found
