"""Make columns of the spans that a simulation has written down, in order: by rank, iteration and time."""

from array import array

import numpy as np
import numpy.typing as npt

from wanbed.results.records.span_columns import Column, SpanColumns
from wanbed.results.records.span_log import NO_REQUEST
from wanbed.runner.simulator.simulation import NO_PEER

_RANK, _PEER = 0, 7
"""The positions of two numbers in a row of ``Training.rows``."""


def span_order(rows: Column) -> npt.NDArray[np.intp]:
    """Return the order of spans, given as rows of eight numbers: by rank, iteration and time."""
    rank, kind, iteration, microbatch, start_ns, end_ns, _, _ = rows.T
    return np.lexsort((microbatch, kind, end_ns, start_ns, iteration, rank))


def ordered_spans(flat: "array[int]", ranks: int, represented: int) -> SpanColumns:
    """Return the spans of the first ``represented`` parts in order, copied from the first's: eight numbers a span.

    Each part has so many ranks.

    One column is handled at a time, so that the memory is little more than that of the columns.
    """
    rows = np.frombuffer(flat, np.int64).reshape(-1, 8)
    order = span_order(rows)
    shifts = np.arange(represented, dtype=np.int64)[:, None] * ranks

    def column(position: int) -> Column:
        own = rows[:, position][order]
        if position == _RANK:
            own = own + shifts
        elif position == _PEER:
            own = np.where(own == NO_PEER, NO_PEER, own + shifts)
        return np.broadcast_to(own, (represented, len(order))).reshape(-1)

    of_none = np.broadcast_to(np.int64(NO_REQUEST), represented * len(order))
    return SpanColumns(*[*(column(position) for position in range(rows.shape[1])), of_none])
