"""Hold a trial's traces as whole columns, perhaps millions of rows, where they do not come row by row from ranks.

Both classes turn into tables piece by piece, with text columns as codes: a large trial is never in memory twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wanbed.results.records.arrow_arrays import codes, numbers, texts
from wanbed.results.records.schema import LINK_SAMPLES, SPANS, SPANS_OF_VIRTUAL_STAGES, VIRTUAL_STAGE
from wanbed.results.records.span_columns import Column, SpanColumns, TraceSpanColumns, VirtualSpanColumns
from wanbed.results.records.span_log import ACTIVATION, GRADIENT, SPAN_KINDS, RankPlace, between_ranks
from wanbed.results.records.table_files import coded_schema
from wanbed.results.records.trial_id import TrialId

_ROWS = 2**20
_TENSORS = "", ACTIVATION, GRADIENT
_TRANSFERS = SPAN_KINDS.index("send"), SPAN_KINDS.index("receive")

_Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TrialSpans:
    """Spans as columns; ``rank`` and ``peer`` there count ``owners``."""

    owners: Sequence[RankPlace]
    columns: SpanColumns

    @property
    def schema(self) -> pa.Schema:
        """The schema of the spans."""
        return SPANS_OF_VIRTUAL_STAGES if isinstance(self.columns, VirtualSpanColumns) else SPANS

    def table(self, key: TrialId) -> pa.Table:
        """Return the spans of that trial as one table of the ``coded_schema`` of ``schema``."""
        none = pa.Table.from_batches([], coded_schema(self.schema))
        return pa.concat_tables([none, *self._tables(key, max(len(self.columns.rank), 1))])

    def tables(self, key: TrialId) -> Iterator[pa.Table]:
        """Yield them as tables of not too many rows each."""
        return self._tables(key, _ROWS)

    def _tables(self, key: TrialId, most_rows: int) -> Iterator[pa.Table]:
        owners, spans = self.owners, self.columns
        # The last one is that of no peer, which is -1.
        hosts = texts([*(owner.host for owner in owners), ""])
        datacenters = texts([owner.datacenter for owner in owners])
        places = np.array([(o.rank, o.gpu, o.pipeline, o.stage) for o in owners], np.int32).reshape(-1, 4)
        ranks, gpus, pipelines, stages = np.ascontiguousarray(places.T)
        kinds, tensors = texts(SPAN_KINDS), texts(_TENSORS)
        for piece in _pieces(len(spans.rank), most_rows):
            position = spans.rank[piece]
            stage, peer = stages[position], spans.peer[piece]
            columns: dict[str, Any] = {
                "rank": ranks[position],
                "host": _taken(hosts, position),
                "datacenter": _taken(datacenters, position),
                "gpu": gpus[position],
                "pipeline": pipelines[position],
                "stage": stage,
                "iteration": spans.iteration[piece],
                "microbatch": spans.microbatch[piece],
                "kind": _taken(kinds, spans.kind[piece]),
                "start_ns": spans.start_ns[piece],
                "end_ns": spans.end_ns[piece],
                "size_bytes": spans.size_bytes[piece],
                "peer": _taken(hosts, peer),
                "request": np.asarray(spans.request[piece], np.int32),
            }
            if isinstance(spans, VirtualSpanColumns):
                virtual_stage = spans.virtual_stage[piece]
                columns["tensor"] = _taken(tensors, spans.tensor[piece])
                columns[VIRTUAL_STAGE] = numbers(virtual_stage, virtual_stage < 0)
            elif isinstance(spans, TraceSpanColumns):
                columns["tensor"] = _tensor_or_ranks(spans, piece)
            else:
                columns["tensor"] = _taken(tensors, _tensor(spans.kind[piece], stage, peer, stages))
            yield _table(self.schema, key, columns, len(position))


@dataclass(frozen=True)
class TrialCounters:
    """Counters of links and node pairs, all read at the same times.

    ``wire_bytes[i, k]`` is what the directed link or node pair ``ends[i]``, a (scope, source, destination), had sent
    at ``times_ns[k]``. Packets were not counted, nothing was dropped, and no queue was read.
    """

    times_ns: Column
    ends: Sequence[tuple[str, str, str]]
    wire_bytes: npt.NDArray[np.int64]

    def tables(self, key: TrialId) -> Iterator[pa.Table]:
        """Yield the counters of that trial as tables of the ``coded_schema`` of ``LINK_SAMPLES``."""
        scopes, sources, destinations = (texts([end[field] for end in self.ends]) for field in range(3))
        for piece in _pieces(self.wire_bytes.size, _ROWS):
            line, moment = np.divmod(np.arange(piece.start, piece.stop), max(len(self.times_ns), 1))
            rows = len(line)
            columns: dict[str, Any] = {
                "time_ns": self.times_ns[moment],
                "scope": _taken(scopes, line),
                "source": _taken(sources, line),
                "destination": _taken(destinations, line),
                "wire_bytes": self.wire_bytes.reshape(-1)[piece],
                "packets": pa.nulls(rows, pa.int64()),
                "backlog_bytes": np.zeros(rows, np.int64),
                "drops": np.zeros(rows, np.int64),
            }
            yield _table(LINK_SAMPLES, key, columns, rows)


def _tensor(kind: Column, stage: _Int32s, peer: Column, stages: _Int32s) -> npt.NDArray[np.uint8]:
    """Return 0 for no transfer, 1 for an activation (to a later stage), 2 for a gradient (to an earlier one)."""
    sends = kind == _TRANSFERS[0]
    transfers = (sends | (kind == _TRANSFERS[1])) & (peer >= 0)
    # That of no peer is some stage, and is left out again.
    later = stages[peer] > stage if len(stages) else transfers
    return np.where(transfers, np.where(later == sends, np.uint8(1), np.uint8(2)), np.uint8(0))


def _tensor_or_ranks(spans: TraceSpanColumns, piece: slice) -> "pa.Array[Any]":
    """Return what each message carries, or its two ranks, like 0,2, where that is not known; else an empty text."""
    kind, rank, peer, tensor = (column[piece] for column in (spans.kind, spans.rank, spans.peer, spans.tensor))
    unknown = np.isin(kind, _TRANSFERS) & (peer >= 0) & (tensor == 0)
    sends = kind == _TRANSFERS[0]
    ends = np.stack((np.where(sends, rank, peer), np.where(sends, peer, rank)), axis=1)
    distinct, number = np.unique(ends[unknown], axis=0, return_inverse=True)
    named = texts([*_TENSORS, *(between_ranks(*pair) for pair in distinct.tolist())])
    index = tensor.copy()
    index[unknown] = len(_TENSORS) + number.reshape(-1)
    return _taken(named, index)


def _taken(coded: "pa.DictionaryArray[Any, Any]", positions: npt.NDArray[Any]) -> "pa.DictionaryArray[Any, Any]":
    """Return the texts at these positions; -1 is the last one's."""
    return pa.DictionaryArray.from_arrays(numbers(codes(coded)[positions]), coded.dictionary)


def _pieces(rows: int, most_rows: int) -> Iterator[slice]:
    return (slice(start, min(start + most_rows, rows)) for start in range(0, rows, most_rows))


def _table(schema: pa.Schema, key: TrialId, columns: Mapping[str, Any], rows: int) -> pa.Table:
    coded, none = coded_schema(schema), np.zeros(rows, np.int32)
    trial = (
        pa.DictionaryArray.from_arrays(numbers(none), texts([value]).dictionary)
        if isinstance(value, str)
        else numbers(np.full(rows, value, np.int32) if value else none)
        for value in key
    )
    own = (_array(columns[name]).cast(coded.field(name).type) for name in schema.names[len(key) :])
    return pa.Table.from_arrays([*trial, *own], schema=coded)


def _array(column: "pa.Array[Any] | npt.NDArray[Any]") -> "pa.Array[Any]":
    return numbers(column) if isinstance(column, np.ndarray) else column
