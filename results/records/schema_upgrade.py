"""Bring tables of the schema version before the current one to the current one."""

import pyarrow as pa

from results.records.span_log import ACTIVATION, GRADIENT, NO_REQUEST

_SENDS, _RECEIVES = "send", "receive"


def upgraded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table of version 1 with the columns of ``schema``; return one whose columns do not fit as it is.

    Version 1 of the spans did not record which tensor a transfer carried. The host at its other end reveals it, unless
    the previous and the next stage of the pipeline share one; then ``tensor`` is left empty.
    """
    new = ("tensor", "request")
    if "tensor" in schema.names and table.schema.names == [name for name in schema.names if name not in new]:
        table = table.append_column(schema.field("tensor"), pa.array(_tensors(table), pa.string()))
        table = table.append_column(schema.field("request"), pa.array([NO_REQUEST] * len(table), pa.int32()))
    return table.cast(schema) if table.schema.names == schema.names else table


def _tensors(spans: pa.Table) -> list[str]:
    trial = ("sweep_point", "variant", "repeat", "pipeline")
    columns = [spans.column(name).to_pylist() for name in (*trial, "stage", "host", "kind", "peer")]
    rows = list(zip(*columns, strict=True))
    hosts = {(*key, stage): host for *key, stage, host, _, _ in rows}
    tensors = []
    for *key, stage, _, kind, peer in rows:
        before, after = hosts.get((*key, stage - 1)) == peer, hosts.get((*key, stage + 1)) == peer
        if kind not in {_SENDS, _RECEIVES} or before == after:
            tensors.append("")
        else:
            tensors.append(ACTIVATION if (kind == _SENDS) == after else GRADIENT)
    return tensors
