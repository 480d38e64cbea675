"""Store the spans of a trial as columns, which can hold millions of spans before they are written."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.results.records.span_log import NO_REQUEST

Column = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SpanColumns:
    """Spans, with one entry per span in every column; the fields are those of ``wanbed.results.records.span_log.Span``.

    ``rank`` and ``peer`` are numbers of ranks; ``peer`` is -1 if there is none. ``kind`` is an index into
    ``SPAN_KINDS``.
    """

    rank: Column
    kind: Column
    iteration: Column
    microbatch: Column
    start_ns: Column
    end_ns: Column
    size_bytes: Column
    peer: Column
    request: Column

    @classmethod
    def of_training(cls, rows: Column) -> "SpanColumns":
        """Build from one row of eight numbers per span: the fields up to ``peer``. None of the spans is a prefill."""
        rank, kind, iteration, microbatch, start_ns, end_ns, size_bytes, peer = (
            np.ascontiguousarray(column) for column in rows.reshape(-1, 8).T
        )
        request = np.full(len(rank), NO_REQUEST)
        return cls(rank, kind, iteration, microbatch, start_ns, end_ns, size_bytes, peer, request)


@dataclass(frozen=True)
class TraceSpanColumns(SpanColumns):
    """Spans of a replayed trace, whose ranks are no stages.

    ``tensor`` is as in ``VirtualSpanColumns``. Of a message of which it is not known, the two ranks are written.
    """

    tensor: Column


@dataclass(frozen=True)
class VirtualSpanColumns(SpanColumns):
    """Spans of stages that are divided into virtual stages, so that stages do not say which tensor is sent.

    ``virtual_stage`` is -1 where there is none. ``tensor`` is 0 for none, 1 for an activation, 2 for a gradient.
    """

    virtual_stage: Column
    tensor: Column
