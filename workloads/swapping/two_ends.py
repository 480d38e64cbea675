"""Lay groups out in one memory so that two neighbouring ones are in it at a time: one at its low end, one at its high.

Groups alternate between the ends. Whatever group is loaded next, the one beside it is untouched, and the memory is as
large as the largest two neighbours, not as the two largest groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_ALIGNED_ELEMENTS = 128
"""A group begins in memory where it begins in the whole model, modulo this: kernels may depend on the alignment."""

LOW, HIGH = 0, 1


def end_of(group: int) -> int:
    """Return the end of the memory at which a group lies."""
    return group % 2


@dataclass(frozen=True)
class TwoEnds:
    """The begin of each group in a memory of ``elements``."""

    starts: tuple[int, ...]
    elements: int


def lay_out(cuts: Sequence[tuple[int, int]]) -> TwoEnds:
    """Return the layout of consecutive groups, each from one element of the whole model to another."""
    low = [start % _ALIGNED_ELEMENTS for start, _ in cuts]
    # Rounded up: wherever a group at the high end begins, it may have to begin up to this much earlier.
    high = [end - start + _ALIGNED_ELEMENTS - 1 for start, end in cuts]
    taken = [
        high[group] if end_of(group) == HIGH else low[group] + end - start for group, (start, end) in enumerate(cuts)
    ]
    elements = max([*taken, *(one + other for one, other in pairwise(taken))])
    starts = []
    for group, (start, end) in enumerate(cuts):
        last = elements - (end - start)
        starts.append(last - (last - start) % _ALIGNED_ELEMENTS if end_of(group) == HIGH else low[group])
    return TwoEnds(tuple(starts), elements)
