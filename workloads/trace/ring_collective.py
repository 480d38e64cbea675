"""Collectives that are made of the steps of a ring all-reduce: the all-reduce itself, and each of its halves.

The first half of the steps is a reduce-scatter, the second one an all-gather. Of n bytes over P ranks a half sends
``(P-1)/P n`` from each rank to the next one, in P-1 steps.
"""

from dataclasses import dataclass
from typing import Final

ALL_REDUCE: Final = "all_reduce"
ALL_GATHER: Final = "all_gather"
REDUCE_SCATTER: Final = "reduce_scatter"
RING_COLLECTIVES: Final = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)


@dataclass(frozen=True)
class RingCollective:
    """A collective of ``replicas`` ranks, each of which puts ``input_bytes`` into it.

    ``kind`` is one of ``RING_COLLECTIVES``.
    """

    kind: str
    input_bytes: int
    replicas: int

    @property
    def whole_bytes(self) -> int:
        """The size of the data that the ring cuts into segments: what all ranks gather, or what each one sums."""
        return self.input_bytes * (self.replicas if self.kind == ALL_GATHER else 1)

    @property
    def is_half(self) -> bool:
        """Whether it has half of the steps of an all-reduce."""
        return self.kind != ALL_REDUCE

    @property
    def steps(self) -> range:
        """The steps of the ring that it makes, numbered as those of an all-reduce."""
        half = self.replicas - 1
        return range(half if self.kind == ALL_GATHER else 0, half if self.kind == REDUCE_SCATTER else 2 * half)
