"""Make columns of the spans of a simulation, in order: by rank, iteration and time.

A span is a row of eight numbers. Where stages are divided into virtual stages, ``WorkNumbers`` puts the microbatch, the
virtual stage and the tensor into one of them.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.results.records.span_columns import Column, SpanColumns, VirtualSpanColumns
from wanbed.results.records.span_log import NO_REQUEST
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.simulation import NO_PEER
from wanbed.workloads.message import MessageKind

_RANK, _PEER = 0, 7
"""The positions of two numbers in a row of ``Training.rows``."""

_NUMBERS = 8
_ROWS = 1 << 16


def span_order(columns: Sequence[Column]) -> npt.NDArray[np.intp]:
    """Return the order of spans, given as the columns of their rows: by rank, iteration and time."""
    rank, kind, iteration, microbatch, start_ns, end_ns, _, _ = columns
    return np.lexsort((microbatch, kind, end_ns, start_ns, iteration, rank))


def taken_columns(flat: "array[int]") -> list[Column]:
    """Return the columns of rows of eight numbers, and leave no row: rows and columns are never in memory together."""
    count = len(flat) // _NUMBERS
    columns = [np.empty(count, np.int64) for _ in range(_NUMBERS)]
    for begin in reversed(range(0, count, _ROWS)):
        # What is left of the rows ends with these. Their view has to be gone before they may be.
        rows = np.array(np.frombuffer(flat, np.int64, offset=begin * _NUMBERS * flat.itemsize)).reshape(-1, _NUMBERS)
        for column, numbers in zip(columns, rows.T, strict=True):
            column[begin : begin + len(rows)] = numbers
        del flat[begin * _NUMBERS :]
    return columns


def ordered_spans(columns: list[Column], ranks: int, represented: int) -> SpanColumns:
    """Return the spans of the first ``represented`` parts in order, copied from the first's: its ``taken_columns``.

    Each part has so many ranks. ``columns`` is empty afterwards: one is handled at a time, so that the memory is little
    more than theirs.
    """
    order = span_order(columns)
    shifts = np.arange(represented, dtype=np.int64)[:, None] * ranks

    def column(position: int) -> Column:
        own = columns.pop(0)[order]
        if position == _RANK:
            own = own + shifts
        elif position == _PEER:
            own = np.where(own == NO_PEER, NO_PEER, own + shifts)
        return np.broadcast_to(own, (represented, len(order))).reshape(-1)

    of_none = np.broadcast_to(np.int64(NO_REQUEST), represented * len(order))
    return SpanColumns(*[*(column(position) for position in range(_NUMBERS)), of_none])


_TENSORS = {None: 0, MessageKind.ACTIVATION: 1, MessageKind.GRADIENT: 2}


@dataclass(frozen=True)
class WorkNumbers:
    """Numbers that stand in the place of a span's microbatch, and have its virtual stage and its tensor too."""

    microbatches: int
    virtual_stages: int

    @classmethod
    def of(cls, variant: PipelineVariant) -> "WorkNumbers | None":
        """Return the numbers of a variant, None if a microbatch says it all: stages are not divided."""
        return None if variant.virtual is None else cls(variant.microbatches, variant.virtual.count)

    def base(self, virtual_stage: int, tensor: MessageKind | None = None) -> int:
        """Return the number of microbatch 0 at a virtual stage, or of a transfer from or to it."""
        return self.microbatches * (virtual_stage + self.virtual_stages * _TENSORS[tensor])

    def decoded(self, spans: SpanColumns) -> VirtualSpanColumns:
        """Return spans whose microbatches are such numbers; below 0 is what belongs to no microbatch."""
        of_stage, microbatch = np.divmod(spans.microbatch, self.microbatches)
        tensor, virtual_stage = np.divmod(of_stage, self.virtual_stages)
        none = spans.microbatch < 0
        own = {**vars(spans), "microbatch": np.where(none, spans.microbatch, microbatch)}
        return VirtualSpanColumns(
            **own, virtual_stage=np.where(none, -1, virtual_stage), tensor=np.where(none, 0, tensor)
        )
